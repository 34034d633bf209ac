/* holdfast check: everything that is wrong with a policy file. */
#include "tools/common/policy_check.h"
#include "tools/holdfast/command.h"

#include <stdbool.h>
#include <stdio.h>

static const char help[] =
    "Usage: holdfast check [--strict] POLICY\n"
    "\n"
    "Reads a policy file and says everything that is wrong with it, each problem as\n"
    "`file:line: path: message` on standard output, and nothing when all is well but a\n"
    "line of what it has. Warnings do not refuse a policy.\n"
    "\n"
    "  --strict   refuse what this build accepts but cannot do yet: on_limit: queue\n"
    "  --help     this text\n"
    "\n"
    "Exit status: 0 the policy is good, 2 it is refused.\n";

static void print_summary(const char *path, const struct hf_policy *policy)
{
    size_t teams = 0, keys = 0;

    for (size_t i = 0; i < policy->tenant_cnt; i++) {
        teams += policy->tenants[i].team_cnt;
        for (size_t j = 0; j < policy->tenants[i].team_cnt; j++) {
            keys += policy->tenants[i].teams[j].key_cnt;
        }
    }
    (void)printf("%s: good: %zu tenants, %zu teams, %zu keys, %zu models, prices %s in %s\n", path,
                 policy->tenant_cnt, teams, keys, policy->model_cnt, policy->price_revision.bytes,
                 policy->currency.bytes);
}

int hf_cmd_check(int argc, char **argv)
{
    static const struct option options[] = {
        {"strict", no_argument, NULL, 's'}, HF_OPTION_HELP, HF_OPTION_END};
    struct hf_policy *policy = NULL;
    bool strict = false;
    int option = 0;

    optind = 0;
    while ((option = hf_command_option("check", argc, argv, options)) != -1) {
        if (option == 'h') {
            (void)fputs(help, stdout);
            return HF_EXIT_OK;
        }
        if (option != 's') {
            return HF_EXIT_USAGE;
        }
        strict = true;
    }
    if (optind != argc - 1) {
        return hf_command_misuse("check", "name one policy file");
    }
    if (hf_policy_check_file(argv[optind], strict, stdout, &policy) != 0) {
        return HF_EXIT_USAGE;
    }
    print_summary(argv[optind], policy);
    hf_policy_free(policy);
    return HF_EXIT_OK;
}
