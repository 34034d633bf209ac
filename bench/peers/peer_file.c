#include "bench/peers/peer_file.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench/peers/peer.h"

#define TEXT_BYTES_MAX 65536

char *peer_file_read(const char *name)
{
    char path[4096];
    snprintf(path, sizeof(path), "%s/%s", PEER_FOLDER, name);
    FILE *file = fopen(path, "re");
    if (!file) {
        peer_error("cannot read %s: %s; build again where the sources are", path, strerror(errno));
        return NULL;
    }
    char *text = calloc(1, TEXT_BYTES_MAX);
    if (text) {
        size_t bytes = fread(text, 1, TEXT_BYTES_MAX - 1, file);
        text[bytes] = '\0';
    }
    fclose(file);
    return text;
}
