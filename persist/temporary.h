/* A store that is thrown away: a SQLite file in a folder of its own. */
#ifndef HF_PERSIST_TEMPORARY_H
#define HF_PERSIST_TEMPORARY_H

#include "shm/error.h"

#include <stddef.h>

struct hf_temporary {
    char path[256]; /* of the folder; "": none */
};

/* Makes a folder (0700) under TMPDIR or /tmp, and writes the URL of a store in it. HF_OK; HF_ESYS, HF_EARG. */
int hf_temporary_make(struct hf_temporary *temporary, char *url, size_t url_bytes, struct hf_error *err);

/* Removes the store's files and the folder. */
void hf_temporary_remove(struct hf_temporary *temporary);

#endif
