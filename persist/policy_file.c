#include "persist/policy_file.h"

#include "persist/digest.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The bytes of a file, or NULL: whoever asked then lets the loader say what is wrong with it. */
static char *read_all(const char *path, size_t *len)
{
    FILE *in = fopen(path, "rbe");
    char *bytes = NULL;
    size_t room = 1U << 16;

    *len = 0;
    if (in == NULL) {
        return NULL;
    }
    for (;;) {
        char *more = realloc(bytes, room + 1);

        if (more == NULL) {
            break;
        }
        bytes = more;
        *len += fread(bytes + *len, 1, room - *len, in);
        if (*len < room) {
            break;
        }
        if (room > HF_POLICY_BYTES_MAX) {
            break; /* too large: the loader says so */
        }
        room *= 2;
    }
    bool failed = bytes == NULL || ferror(in) != 0 || *len > HF_POLICY_BYTES_MAX;

    (void)fclose(in);
    if (failed) {
        free(bytes);
        return NULL;
    }
    bytes[*len] = '\0';
    return bytes;
}

static bool digest_of(struct hf_policy_file *file)
{
    struct hf_digest *digest = hf_digest_new();
    bool done = digest != NULL && hf_digest_bytes(digest, file->bytes, file->len, file->digest);

    hf_digest_free(digest);
    return done;
}

int hf_policy_file_read(const char *path, uint32_t flags, struct hf_policy_file *file,
                        struct hf_policy_report *report)
{
    int status;

    *file = (struct hf_policy_file){0};
    file->bytes = read_all(path, &file->len);
    if (file->bytes == NULL) {
        /* A file that cannot be read, or is too large: the loader's own words. Should it be readable now, the digest is
         * missing, and that is no success. */
        status = hf_policy_load(path, flags, &file->policy, report);
        hf_policy_file_free(file);
        return status == HF_POLICY_LOADED ? HF_POLICY_NO_MEMORY : status;
    }
    status = hf_policy_load_bytes(path, file->bytes, file->len, flags, &file->policy, report);
    file->path = strdup(path);
    if (status == HF_POLICY_LOADED && (file->path == NULL || !digest_of(file))) {
        status = HF_POLICY_NO_MEMORY;
    }
    if (status != HF_POLICY_LOADED) {
        hf_policy_file_free(file);
    }
    return status;
}

void hf_policy_file_free(struct hf_policy_file *file)
{
    hf_policy_free(file->policy);
    free(file->path);
    free(file->bytes);
    *file = (struct hf_policy_file){0};
}
