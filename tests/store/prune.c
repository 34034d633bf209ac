/* `holdfast store prune` as the owner of a store calls it: what it says, and what `show` and `verify` say afterwards.
 *
 *   store_prune HOLDFAST sqlite|postgres
 */
#include "tests/support/prune_lab.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>

#include <cmocka.h>

static const char *holdfast;
static bool postgres;

/* What the command says, and its exit status. */
static const char *say(struct lab *lab, const char *before, const char *after, int expected)
{
    static char text[16384];
    char command[2048];
    size_t len;
    int status;
    FILE *out;

    (void)snprintf(command, sizeof(command), "'%s' %s '%s' %s 2>&1", holdfast, before, lab->url, after);
    out = popen(command, "r"); /* NOLINT(cert-env33-c): the command and the store are the test's own */
    assert_non_null(out);
    len = fread(text, 1, sizeof(text) - 1, out);
    text[len] = '\0';
    status = pclose(out);
    if (!WIFEXITED(status) || WEXITSTATUS(status) != expected) {
        fail_msg("%s: status %d, not %d: %s", command, status, expected, text);
    }
    return text;
}

static void says(const char *text, const char *words)
{
    if (strstr(text, words) == NULL) {
        fail_msg("not '%s' in: %s", words, text);
    }
}

static void the_command_prunes_and_tells(void **state)
{
    const struct prune_past past = {.summed = true, .old_only = true, .open = true};
    struct lab lab;
    const char *text;

    (void)state;
    prune_lab_new(&lab, postgres, &past);
    says(say(&lab, "store prune", "", 2), "--before 2026-09-01");
    says(say(&lab, "store prune", "--before yesterday", 2), "not 'yesterday'");
    says(say(&lab, "store prune", "--before 2999-01-01", 2), "future");
    says(say(&lab, "store show", "--before 2026-10-01", 2), "go with prune");

    text = say(&lab, "store prune", "--before 2026-10-01 --dry-run --json", 0);
    says(text, "\"prune\":true");
    says(text, "\"reason\":\"the reservation of 'gateway' with receipt 10 is open");
    says(text, "\"dry_run\":true,\"ended\":true");
    assert_int_equal(atoi(lab_sql(&lab, "SELECT count(*) FROM prune")), 0);

    text = say(&lab, "store prune", "--before 2026-10-01T00:00:00Z", 0);
    says(text, "goes ");
    says(text, "stays ");
    says(text, "receipts before 2026-10-01T00:00:00.000Z were pruned from");
    assert_true(atoi(lab_sql(&lab, "SELECT count(*) FROM prune")) > 0);
    says(say(&lab, "store prune", "--before 2026-10-01", 0), "Nothing to prune");

    text = say(&lab, "store show", "--segment gateway", 0);
    says(text, "by the records of retention");
    assert_null(strstr(text, "MISSING"));
    text = say(&lab, "verify", "--rollups", 0);
    says(text, "pruned ");
    says(text, "holds");
    (void)lab_sql(&lab, "DELETE FROM receipt WHERE seq = 12 AND kind = 'settlement'");
    says(say(&lab, "store show", "--segment gateway", 0), "ROWS ARE MISSING");
    says(say(&lab, "verify", "", 1), "removed");
    lab_drop(&lab);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(the_command_prunes_and_tells)};
    int failed;

    if (argc != 3) {
        (void)fprintf(stderr, "usage: store_prune HOLDFAST sqlite|postgres\n");
        return 2;
    }
    holdfast = argv[1];
    postgres = strcmp(argv[2], "postgres") == 0;
    if (!lab_available(postgres)) {
        (void)fprintf(stderr, "HOLDFAST_TEST_PG is not set\n");
        return 77;
    }
    if ((uint64_t)time(NULL) * 1000 < PRUNE_BEFORE - 40 * PRUNE_DAY_MS) {
        (void)fprintf(stderr, "this machine's clock shows a time before what is to be pruned\n");
        return 77;
    }
    failed = cmocka_run_group_tests(tests, NULL, NULL);
    lab_clean();
    return failed;
}
