/* nginx: quota in a lua_shared_dict (nginx_quota.lua). A request does many pairs, so HTTP is a small part of the time.
 * --address is the Unix socket. With several processes each keeps a connection to a worker of its own. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "bench/peers/peer.h"

#define ANSWER_BYTES_MAX 65536
#define TRIES            2000

/* Which worker each process has got, so that no two have the same. */
struct claims {
    uint64_t worker_pids[PEER_PROCESSES_MAX];
};

struct connection {
    int fd;
    size_t used;
    char answer[ANSWER_BYTES_MAX + 1]; /* head and body */
    char *body;
};

static int connect_to(const char *address)
{
    struct sockaddr_un to = {.sun_family = AF_UNIX};
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    snprintf(to.sun_path, sizeof(to.sun_path), "%s", address);
    if (fd < 0 || connect(fd, (const struct sockaddr *)&to, sizeof(to))) {
        peer_error("no nginx at '%s': %s; --address wants its Unix socket", address, strerror(errno));
        if (fd >= 0) {
            close(fd);
        }
        return -1;
    }
    return fd;
}

/* Whether the answer is complete: then body and its end are set. */
static int is_complete(struct connection *c)
{
    c->answer[c->used] = '\0';
    char *head_end = strstr(c->answer, "\r\n\r\n");
    if (!head_end) {
        return 0;
    }
    c->body = head_end + 4;
    if (strncmp(c->answer, "HTTP/1.1 200", 12) != 0) {
        return 1;
    }
    /* Chunks: the last one is empty. */
    return c->used >= 5 && strcmp(c->answer + c->used - 5, "0\r\n\r\n") == 0;
}

/* Joins the chunks of the body in place. */
static void join_chunks(struct connection *c)
{
    char *from = c->body;
    char *to = c->body;
    for (;;) {
        char *text = NULL;
        size_t bytes = strtoul(from, &text, 16);
        if (bytes == 0 || text + 2 + bytes > c->answer + c->used) {
            break;
        }
        memmove(to, text + 2, bytes);
        to += bytes;
        from = text + 2 + bytes + 2;
    }
    *to = '\0';
}

/* Sends a request for the target and reads the body of its answer. */
static int ask(struct connection *c, const char *target)
{
    char request[256];
    int bytes = snprintf(request, sizeof(request), "GET /run?%s HTTP/1.1\r\nHost: peer\r\n\r\n", target);
    if (send(c->fd, request, (size_t)bytes, MSG_NOSIGNAL) != bytes) {
        return peer_error("nginx takes no request: %s", strerror(errno));
    }
    c->used = 0;
    do {
        ssize_t got = recv(c->fd, c->answer + c->used, ANSWER_BYTES_MAX - c->used, 0);
        if (got <= 0) {
            return peer_error("nginx ended the connection within an answer; its error.log says why");
        }
        c->used += (size_t)got;
    } while (!is_complete(c));
    if (strncmp(c->answer, "HTTP/1.1 200", 12) != 0) {
        return peer_error("nginx answers %.40s", c->answer);
    }
    join_chunks(c);
    return 0;
}

static void nginx_close(void *connection)
{
    struct connection *c = connection;
    if (c->fd >= 0) {
        close(c->fd);
    }
    free(c);
}

static void *nginx_prepare(const struct peer_options *options)
{
    char target[160];
    struct claims *claims = peer_shared(sizeof(*claims));
    struct connection *c = calloc(1, sizeof(*c));
    if (!claims || !c) {
        free(c);
        return NULL;
    }
    snprintf(target, sizeof(target), "what=reset&tenant=%" PRIu64 "&team=%" PRIu64, PEER_TENANT_LIMIT,
             PEER_TEAM_LIMIT);
    c->fd = connect_to(options->address);
    int result = c->fd < 0 ? -1 : ask(c, target);
    nginx_close(c);
    return result ? NULL : claims;
}

/* Takes the worker unless another process has it: the list is filled from its beginning. */
static int claim(struct claims *claims, uint64_t pid)
{
    for (unsigned i = 0; i < PEER_PROCESSES_MAX; i++) {
        uint64_t there = 0;
        if (__atomic_compare_exchange_n(&claims->worker_pids[i], &there, pid, 0, __ATOMIC_SEQ_CST,
                                        __ATOMIC_SEQ_CST)) {
            return 0;
        }
        if (there == pid) {
            return -1;
        }
    }
    return -1;
}

static void *nginx_open(const struct peer_options *options, void *prepared, unsigned process_idx)
{
    struct connection *c = calloc(1, sizeof(*c));
    if (!c) {
        return NULL;
    }
    /* Who checks may ask any worker. A busy worker accepts nothing, so asking again finds another one. */
    for (int i = 0; i < TRIES; i++) {
        c->fd = connect_to(options->address);
        if (c->fd < 0 || ask(c, "what=worker")) {
            break;
        }
        if (process_idx == options->process_cnt || claim(prepared, strtoull(c->body, NULL, 10)) == 0) {
            return c;
        }
        close(c->fd);
        usleep(1000);
    }
    if (c->fd >= 0) {
        peer_error("all connections came to the same worker of nginx");
    }
    nginx_close(c);
    return NULL;
}

static int nginx_pairs(void *connection, uint64_t first_id, unsigned cnt)
{
    struct connection *c = connection;
    char target[100];
    snprintf(target, sizeof(target), "what=pairs&first=%" PRIu64 "&n=%u", first_id, cnt);
    if (ask(c, target)) {
        return -1;
    }
    return strncmp(c->body, "done", 4) == 0
               ? 0
               : peer_error("a pair was not admitted and settled: %.60s", c->body);
}

static int nginx_timed(void *connection, uint64_t first_id, unsigned cnt, struct hf_histogram *histogram)
{
    struct connection *c = connection;
    char target[100];
    snprintf(target, sizeof(target), "what=timed&first=%" PRIu64 "&n=%u", first_id, cnt);
    if (ask(c, target)) {
        return -1;
    }
    const char *at = c->body;
    for (unsigned i = 0; i < cnt; i++) {
        char *end = NULL;
        hf_histogram_add(histogram, strtoull(at, &end, 10));
        if (end == at) {
            return peer_error("%u durations of %u came: %.60s", i, cnt, c->body);
        }
        at = end;
    }
    return 0;
}

static int nginx_refused(void *connection, uint64_t id)
{
    struct connection *c = connection;
    char target[100];
    snprintf(target, sizeof(target), "what=reserve&first=%" PRIu64 "&amount=%" PRIu64, id, PEER_TOO_MUCH);
    if (ask(c, target)) {
        return -1;
    }
    return c->body[0] == '2';
}

static int nginx_totals(void *connection, struct peer_totals *totals)
{
    struct connection *c = connection;
    char *end = NULL;
    if (ask(c, "what=totals")) {
        return -1;
    }
    totals->tenant_micros = strtoull(c->body, &end, 10);
    totals->team_micros = strtoull(end, NULL, 10);
    return 0;
}

int main(int argc, char **argv)
{
    static const struct peer peer = {
        .name = "nginx",
        .batch_cnt = 20000,
        .prepare = nginx_prepare,
        .open = nginx_open,
        .pairs = nginx_pairs,
        .timed = nginx_timed,
        .refused = nginx_refused,
        .totals = nginx_totals,
        .close = nginx_close,
    };
    return peer_main(argc, argv, &peer);
}
