/* Opening a segment, joining it once per thread, and what can stand in the way. */
#include <holdfast.h>
#include <pthread.h>
#include <stdio.h>

static void *worker(void *arg)
{
    struct holdfast_segment *segment = arg;
    struct holdfast *quota;

    /* One handle per thread; the mapping is shared. */
    int rc = holdfast_join(segment, &quota);
    if (rc != HOLDFAST_OK) {
        fprintf(stderr, "join: %s\n", holdfast_strerror(rc));
        return NULL;
    }
    printf("a thread has joined; the clock of the quota says %llu\n",
           (unsigned long long)holdfast_now_ms(quota));
    holdfast_leave(quota);
    return segment;
}

int main(int argc, char **argv)
{
    const char *name = argc > 1 ? argv[1] : "demo";
    struct holdfast_segment *segment;
    char error[512];

    printf("holdfast %s\n", holdfast_version());
    int rc = holdfast_open("/nonexistent/segment", &segment, error, sizeof error);
    printf("a segment that is not there: %d: %s\n", rc, error); /* what happened, why, what to do */
    if (rc == HOLDFAST_OK) {
        return 1;
    }

    rc = holdfast_open(name, &segment, error, sizeof error);
    if (rc == HOLDFAST_MISSING || rc == HOLDFAST_NOT_READY) {
        fprintf(stderr, "%s\n", error); /* a gateway would try again after a while */
        return 1;
    }
    if (rc != HOLDFAST_OK) {
        fprintf(stderr, "%s: %s\n", holdfast_strerror(rc), error);
        return 1;
    }

    pthread_t threads[2];
    void *joined[2] = {NULL, NULL};
    for (int i = 0; i < 2; i++) {
        if (pthread_create(&threads[i], NULL, worker, segment) != 0) {
            return 1;
        }
    }
    for (int i = 0; i < 2; i++) {
        pthread_join(threads[i], &joined[i]);
    }
    holdfast_close(segment); /* after the last handle has left */
    return joined[0] != NULL && joined[1] != NULL ? 0 : 1;
}
