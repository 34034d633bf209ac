#include "persist/temporary.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char *const endings[] = {"", "-wal", "-shm", "-journal", "-lock"};

int hf_temporary_make(struct hf_temporary *temporary, char *url, size_t url_bytes, struct hf_error *err)
{
    const char *folder = getenv("TMPDIR");
    char path[sizeof(temporary->path)];
    int len;

    if (folder == NULL || folder[0] != '/') {
        folder = "/tmp";
    }
    len = snprintf(path, sizeof(path), "%s/holdfast-XXXXXX", folder);
    if (len < 0 || (size_t)len >= sizeof(path)) {
        return hf_error_set(err, HF_EARG, "TMPDIR is too long for a temporary store");
    }
    if (mkdtemp(path) == NULL) {
        return hf_error_set(err, HF_ESYS, "cannot make a temporary store: %s: %s", path, strerror(errno));
    }
    memcpy(temporary->path, path, sizeof(path));
    len = snprintf(url, url_bytes, "sqlite:%s/run.db", path);
    if (len < 0 || (size_t)len >= url_bytes) {
        hf_temporary_remove(temporary);
        return hf_error_set(err, HF_EARG, "TMPDIR is too long for a temporary store");
    }
    return HF_OK;
}

void hf_temporary_remove(struct hf_temporary *temporary)
{
    char file[sizeof(temporary->path) + 32];

    if (temporary->path[0] == '\0') {
        return;
    }
    for (size_t i = 0; i < sizeof(endings) / sizeof(endings[0]); i++) {
        (void)snprintf(file, sizeof(file), "%s/run.db%s", temporary->path, endings[i]);
        (void)unlink(file);
    }
    (void)rmdir(temporary->path);
    temporary->path[0] = '\0';
}
