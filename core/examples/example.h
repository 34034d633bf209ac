/* What every example but quick.c and open.c begins with; not part of the library. */
#ifndef HOLDFAST_EXAMPLE_H
#define HOLDFAST_EXAMPLE_H

#include <holdfast.h>

#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

/* Opens and joins, or leaves the program with a sentence. */
static inline struct holdfast *example_join(int argc, char **argv, struct holdfast_segment **segment)
{
    struct holdfast *quota;
    char error[512] = "";
    int rc = holdfast_open(argc > 1 ? argv[1] : "demo", segment, error, sizeof error);

    if (rc == HOLDFAST_OK) {
        rc = holdfast_join(*segment, &quota);
    }
    if (rc != HOLDFAST_OK) {
        fprintf(stderr, "%s %s\n", holdfast_strerror(rc), error);
        exit(1);
    }
    return quota;
}

/* An id that no other call has: a gateway takes its request's own. */
static inline const char *example_id(char id[64], const char *what)
{
    snprintf(id, 64, "%s-%ld-%ld", what, (long)time(NULL), (long)getpid());
    return id;
}

/* Leaves the program when something is not as the text says. */
static inline void example_expect(int holds, const char *text)
{
    if (!holds) {
        fprintf(stderr, "not so: %s\n", text);
        exit(1);
    }
    printf("%s\n", text);
}

#endif
