#include "tests/support/proxy.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#define PAIRS_MAX   16
#define CHUNK_BYTES 65536

/* A client and its connection to the server. */
struct pair {
    int fds[2]; /* by where bytes come from: HF_PROXY_UP the client, HF_PROXY_DOWN the server; -1: free */
    uint64_t passed[2];
    bool armed; /* the fault is for this one */
    bool hung;
    bool swallow; /* the server's answer to our ROLLBACK is not for the client */
    bool fresh;   /* nothing came of the client yet */
};

struct hf_proxy {
    struct sockaddr_un here;
    struct sockaddr_un there;
    pthread_t thread;
    pthread_mutex_t mutex; /* over all below but pairs, which are the thread's */
    int listener;
    int stop[2];
    enum hf_proxy_fault fault;
    enum hf_proxy_way way;
    uint64_t bytes;
    bool pending; /* the fault waits for a connection */
    const char *statement;
    const char *sqlstate;
    const char *text;
    uint32_t answers_left;
    bool at_connect;
    struct hf_proxy_seen seen;
    struct pair pairs[PAIRS_MAX];
    char chunk[CHUNK_BYTES];
};

static void drop(struct pair *pair)
{
    (void)close(pair->fds[0]);
    (void)close(pair->fds[1]);
    pair->fds[0] = pair->fds[1] = -1;
}

static bool send_all(int fd, const char *bytes, size_t len)
{
    while (len > 0) {
        ssize_t sent = send(fd, bytes, len, MSG_NOSIGNAL);

        if (sent <= 0) {
            return false;
        }
        bytes += sent;
        len -= (size_t)sent;
    }
    return true;
}

/* ---- errors of the server that the server never made ----------------------------------------------------------- */

static size_t put(char *at, char field, const char *text)
{
    size_t len = strlen(text) + 1;

    at[0] = field;
    memcpy(at + 1, text, len);
    return len + 1;
}

/* An ErrorResponse; with ready, a ReadyForQuery after it. */
static void send_error(const struct hf_proxy *proxy, int client, const char *severity, bool ready)
{
    char message[512] = "E";
    size_t len = 5;

    len += put(message + len, 'S', severity);
    len += put(message + len, 'V', severity);
    len += put(message + len, 'C', proxy->sqlstate);
    len += put(message + len, 'M', proxy->text);
    message[len++] = '\0';
    message[1] = message[2] = '\0';
    message[3] = (char)((len - 1) >> 8);
    message[4] = (char)((len - 1) & 0xff);
    if (ready) {
        memcpy(message + len, "Z\0\0\0\5I", 6);
        len += 6;
    }
    (void)send_all(client, message, len);
}

/* True when these bytes of the client are answered here. */
static bool answered(struct hf_proxy *proxy, struct pair *pair, const char *bytes, size_t len)
{
    static const char rollback[] = "Q\0\0\0\rROLLBACK"; /* with the last \0 of the literal: 14 bytes */

    if (proxy->answers_left == 0) {
        return false;
    }
    if (proxy->at_connect && pair->fresh) {
        proxy->answers_left--;
        proxy->seen.answers_cnt++;
        send_error(proxy, pair->fds[HF_PROXY_UP], "FATAL", false);
        drop(pair);
        return true;
    }
    if (proxy->at_connect || len < 5 + strlen(proxy->statement) || bytes[0] != 'Q' ||
        memcmp(bytes + 5, proxy->statement, strlen(proxy->statement)) != 0) {
        return false;
    }
    proxy->answers_left--;
    proxy->seen.answers_cnt++;
    pair->swallow = true;
    (void)send_all(pair->fds[HF_PROXY_DOWN], rollback, sizeof(rollback));
    return true;
}

/* ---- passing on ------------------------------------------------------------------------------------------------- */

/* How much of len bytes passes before the fault; *now: the fault happens after them. */
static size_t until_fault(const struct hf_proxy *proxy, const struct pair *pair, int way, size_t len,
                          bool *now)
{
    *now = pair->armed && way == (int)proxy->way && pair->passed[way] + len >= proxy->bytes;
    return *now ? (size_t)(proxy->bytes - pair->passed[way]) : len;
}

static void happen(struct hf_proxy *proxy, struct pair *pair)
{
    const struct timespec pause = {.tv_nsec = 50000000};

    proxy->seen.faults_cnt++;
    pair->armed = false;
    switch (proxy->fault) {
    case HF_PROXY_CUT:
        drop(pair);
        break;
    case HF_PROXY_HANG:
        pair->hung = true;
        break;
    default:
        (void)nanosleep(&pause, NULL);
        break;
    }
}

static void pass(struct hf_proxy *proxy, struct pair *pair, int way)
{
    ssize_t got = recv(pair->fds[way], proxy->chunk, sizeof(proxy->chunk), 0);
    bool armed = pair->armed;
    bool now;

    if (got <= 0) {
        drop(pair);
        return;
    }
    if (way == HF_PROXY_DOWN && pair->swallow) {
        if (got >= 6 && memcmp(proxy->chunk + got - 6, "Z\0\0\0\5", 5) == 0) {
            pair->swallow = false;
            send_error(proxy, pair->fds[HF_PROXY_UP], "ERROR", true);
        }
        return;
    }
    if (way == HF_PROXY_UP && answered(proxy, pair, proxy->chunk, (size_t)got)) {
        return;
    }
    pair->fresh = pair->fresh && way != HF_PROXY_UP;
    size_t len = until_fault(proxy, pair, way, (size_t)got, &now);

    pair->passed[way] += len;
    if (armed) {
        proxy->seen.passed_bytes[way] = pair->passed[way];
    }
    bool sent = send_all(pair->fds[way == HF_PROXY_UP ? HF_PROXY_DOWN : HF_PROXY_UP], proxy->chunk, len);

    if (now) {
        happen(proxy, pair);
        if (proxy->fault == HF_PROXY_DELAY) {
            sent = send_all(pair->fds[way == HF_PROXY_UP ? HF_PROXY_DOWN : HF_PROXY_UP], proxy->chunk + len,
                            (size_t)got - len);
        }
    }
    if (!sent && pair->fds[0] >= 0) {
        drop(pair);
    }
}

static void take_client(struct hf_proxy *proxy)
{
    int client = accept4(proxy->listener, NULL, NULL, SOCK_CLOEXEC);
    int server = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    struct pair *pair = NULL;

    for (int i = 0; i < PAIRS_MAX && pair == NULL; i++) {
        pair = proxy->pairs[i].fds[0] < 0 ? &proxy->pairs[i] : NULL;
    }
    if (client < 0 || server < 0 || pair == NULL ||
        connect(server, (const struct sockaddr *)&proxy->there, sizeof(proxy->there)) != 0) {
        (void)close(client);
        (void)close(server);
        return;
    }
    *pair = (struct pair){.fds = {client, server}, .armed = proxy->pending, .fresh = true};
    proxy->pending = false;
    proxy->seen.connections_cnt++;
}

static void serve(struct hf_proxy *proxy, const struct pollfd *polled, const int *whose, int cnt)
{
    if (polled[1].revents != 0) {
        take_client(proxy);
    }
    for (int i = 2; i < cnt; i++) {
        struct pair *pair = &proxy->pairs[whose[i] / 2];
        int way = whose[i] % 2;

        if (polled[i].revents == 0 || pair->fds[way] != polled[i].fd) {
            continue;
        }
        if (pair->hung) {
            drop(pair); /* only its end was waited for */
        } else {
            pass(proxy, pair, way);
        }
    }
}

static void *run(void *ctx)
{
    struct hf_proxy *proxy = ctx;

    for (;;) {
        struct pollfd polled[2 + 2 * PAIRS_MAX] = {{.fd = proxy->stop[0], .events = POLLIN},
                                                   {.fd = proxy->listener, .events = POLLIN}};
        int whose[2 + 2 * PAIRS_MAX];
        int cnt = 2;

        for (int i = 0; i < 2 * PAIRS_MAX; i++) {
            const struct pair *pair = &proxy->pairs[i / 2];

            if (pair->fds[0] >= 0) {
                polled[cnt] = (struct pollfd){.fd = pair->fds[i % 2], .events = pair->hung ? 0 : POLLIN};
                whose[cnt++] = i;
            }
        }
        if (poll(polled, (nfds_t)cnt, -1) < 0 && errno != EINTR) {
            return NULL;
        }
        if (polled[0].revents != 0) {
            return NULL;
        }
        (void)pthread_mutex_lock(&proxy->mutex);
        serve(proxy, polled, whose, cnt);
        (void)pthread_mutex_unlock(&proxy->mutex);
    }
}

/* ---- for the test ----------------------------------------------------------------------------------------------- */

struct hf_proxy *hf_proxy_open(const char *folder, const char *server_socket)
{
    struct hf_proxy *proxy = calloc(1, sizeof(*proxy));

    if (proxy == NULL) {
        return NULL;
    }
    for (int i = 0; i < PAIRS_MAX; i++) {
        proxy->pairs[i].fds[0] = proxy->pairs[i].fds[1] = -1;
    }
    (void)pthread_mutex_init(&proxy->mutex, NULL);
    proxy->here.sun_family = proxy->there.sun_family = AF_UNIX;
    (void)snprintf(proxy->here.sun_path, sizeof(proxy->here.sun_path), "%s/.s.PGSQL.5432", folder);
    (void)snprintf(proxy->there.sun_path, sizeof(proxy->there.sun_path), "%s", server_socket);
    proxy->listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (proxy->listener < 0 ||
        bind(proxy->listener, (const struct sockaddr *)&proxy->here, sizeof(proxy->here)) != 0 ||
        listen(proxy->listener, PAIRS_MAX) != 0 || pipe2(proxy->stop, O_CLOEXEC) != 0 ||
        pthread_create(&proxy->thread, NULL, run, proxy) != 0) {
        free(proxy);
        return NULL;
    }
    return proxy;
}

void hf_proxy_close(struct hf_proxy *proxy)
{
    if (proxy == NULL) {
        return;
    }
    (void)close(proxy->stop[1]);
    (void)pthread_join(proxy->thread, NULL);
    for (int i = 0; i < PAIRS_MAX; i++) {
        if (proxy->pairs[i].fds[0] >= 0) {
            drop(&proxy->pairs[i]);
        }
    }
    (void)close(proxy->listener);
    (void)close(proxy->stop[0]);
    (void)unlink(proxy->here.sun_path);
    (void)pthread_mutex_destroy(&proxy->mutex);
    free(proxy);
}

void hf_proxy_arm(struct hf_proxy *proxy, enum hf_proxy_fault fault, enum hf_proxy_way way, uint64_t bytes)
{
    (void)pthread_mutex_lock(&proxy->mutex);
    proxy->fault = fault;
    proxy->way = way;
    proxy->bytes = bytes;
    proxy->pending = fault != HF_PROXY_NONE;
    for (int i = 0; i < PAIRS_MAX; i++) {
        proxy->pairs[i].armed = false;
    }
    proxy->seen = (struct hf_proxy_seen){0};
    (void)pthread_mutex_unlock(&proxy->mutex);
}

void hf_proxy_answer(struct hf_proxy *proxy, const char *statement, const char *sqlstate, const char *text,
                     uint32_t cnt)
{
    (void)pthread_mutex_lock(&proxy->mutex);
    proxy->statement = statement;
    proxy->at_connect = statement == NULL;
    proxy->sqlstate = sqlstate;
    proxy->text = text;
    proxy->answers_left = cnt;
    proxy->seen = (struct hf_proxy_seen){0};
    (void)pthread_mutex_unlock(&proxy->mutex);
}

void hf_proxy_look(struct hf_proxy *proxy, struct hf_proxy_seen *seen)
{
    (void)pthread_mutex_lock(&proxy->mutex);
    *seen = proxy->seen;
    (void)pthread_mutex_unlock(&proxy->mutex);
}
