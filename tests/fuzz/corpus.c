/* Runs a fuzz target on every file of a folder, for builds without libFuzzer. */
#include "fuzz.h"

#include <dirent.h>
#include <limits.h>
#include <string.h>

static int run_file(const char *path)
{
    FILE *file = fopen(path, "rb");
    char *bytes = NULL;
    size_t cnt = 0, size = 1 << 20;
    uint8_t *exact = NULL;

    if (file == NULL) {
        perror(path);
        return 1;
    }
    bytes = malloc(size);
    FUZZ_REQUIRE(bytes != NULL);
    cnt = fread(bytes, 1, size, file);
    (void)fclose(file);
    /* A block of just this size, so that a read behind its end is found. */
    exact = malloc(cnt == 0 ? 1 : cnt);
    FUZZ_REQUIRE(exact != NULL);
    memcpy(exact, bytes, cnt);
    (void)LLVMFuzzerTestOneInput(exact, cnt);
    free(exact);
    free(bytes);
    return 0;
}

int main(int argc, char **argv)
{
    DIR *folder = argc == 2 ? opendir(argv[1]) : NULL;
    const struct dirent *entry = NULL;
    int failed = 0, file_cnt = 0;

    if (folder == NULL) {
        (void)fprintf(stderr, "Usage: %s FOLDER\n", argv[0]);
        return 2;
    }
    while ((entry = readdir(folder)) != NULL) {
        char path[PATH_MAX];

        if (entry->d_name[0] != '.') {
            (void)snprintf(path, sizeof(path), "%s/%s", argv[1], entry->d_name);
            failed += run_file(path);
            file_cnt++;
        }
    }
    (void)closedir(folder);
    (void)printf("%d files\n", file_cnt);
    return failed > 0 || file_cnt == 0;
}
