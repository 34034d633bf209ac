/* Heads of chains: reading and printing them. */
#include "tools/holdfast/verify_head.h"

#include "persist/digest.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

static int digit(char c)
{
    if (c >= '0' && c <= '9') {
        return c - '0';
    }
    if (c >= 'a' && c <= 'f') {
        return c - 'a' + 10;
    }
    return c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

static bool read_digest(const char *text, uint8_t digest[HF_DIGEST_BYTES])
{
    if (strlen(text) != (size_t)2 * HF_DIGEST_BYTES) {
        return false;
    }
    for (size_t i = 0; i < HF_DIGEST_BYTES; i++) {
        int high = digit(text[2 * i]);
        int low = digit(text[2 * i + 1]);

        if (high < 0 || low < 0) {
            return false;
        }
        digest[i] = (uint8_t)(high * 16 + low);
    }
    return true;
}

/* NAME NUMBER DIGEST; a name may have spaces in it, so it is read from the end. */
static bool read_line(char *line, struct hf_verify_head *head)
{
    char *digest = strrchr(line, ' ');
    char *number;
    char *end = NULL;

    if (digest == NULL) {
        return false;
    }
    *digest++ = '\0';
    number = strrchr(line, ' ');
    if (number == NULL) {
        return false;
    }
    *number++ = '\0';
    errno = 0;
    head->number = strtoull(number, &end, 10);
    return *number >= '0' && *number <= '9' && *end == '\0' && errno == 0 && head->number > 0 &&
           head->number <= INT64_MAX && hf_name_set(&head->segment, line, strlen(line)) &&
           read_digest(digest, head->digest);
}

static bool add(struct hf_verify_heads *heads, const struct hf_verify_head *head)
{
    struct hf_verify_head *list = realloc(heads->list, (heads->cnt + 1) * sizeof(*list));

    if (list == NULL) {
        return false;
    }
    heads->list = list;
    list[heads->cnt++] = *head;
    return true;
}

static bool read_file(struct hf_verify_heads *heads, FILE *file, const char *path, char *why,
                      size_t why_bytes)
{
    char line[256];
    size_t number = 0;

    while (fgets(line, sizeof(line), file) != NULL) {
        struct hf_verify_head head = {.number = 0};

        number++;
        line[strcspn(line, "\r\n")] = '\0';
        if (line[0] == '\0') {
            continue;
        }
        if (!read_line(line, &head)) {
            (void)snprintf(why, why_bytes, "%s:%zu: this is no NAME NUMBER DIGEST", path, number);
            return false;
        }
        if (!add(heads, &head)) {
            (void)snprintf(why, why_bytes, "no memory");
            return false;
        }
    }
    if (ferror(file) != 0) {
        (void)snprintf(why, why_bytes, "%s: %s", path, strerror(errno));
        return false;
    }
    if (heads->cnt == 0) {
        (void)snprintf(why, why_bytes, "%s has no head in it", path);
        return false;
    }
    return true;
}

bool hf_verify_heads_read(struct hf_verify_heads *heads, const char *told, char *why, size_t why_bytes)
{
    struct hf_verify_head head = {.number = 0};
    bool standard = strcmp(told, "-") == 0;
    FILE *file;
    bool read;

    if (read_digest(told, head.digest)) {
        return add(heads, &head) || snprintf(why, why_bytes, "no memory") < 0;
    }
    file = standard ? stdin : fopen(told, "re");
    if (file == NULL) {
        (void)snprintf(why, why_bytes, "%s: %s; say a file of heads, or a digest of 64 hexadecimal digits",
                       told, strerror(errno));
        return false;
    }
    read = read_file(heads, file, told, why, why_bytes);
    if (!standard) {
        (void)fclose(file);
    }
    if (!read) {
        free(heads->list);
        *heads = (struct hf_verify_heads){.list = NULL};
    }
    return read;
}

bool hf_verify_head_print(FILE *to, const char *segment, const struct hf_store_batch *last)
{
    char digest[2 * HF_DIGEST_BYTES + 1];

    hf_digest_hex(last->digest, digest);
    return fprintf(to, "%s %" PRIu64 " %s\n", segment, last->number, digest) > 0;
}
