/* The tests' own proxy before a PostgreSQL server: socket file to socket file, in a thread of its own. It breaks one thing, once, at
 * an exact place, and passes everything else on. */
#ifndef HF_TESTS_SUPPORT_PROXY_H
#define HF_TESTS_SUPPORT_PROXY_H

#include <stdbool.h>
#include <stdint.h>

enum hf_proxy_way {
    HF_PROXY_UP = 0,  /* from the client to the server */
    HF_PROXY_DOWN = 1 /* from the server to the client */
};

enum hf_proxy_fault {
    HF_PROXY_NONE = 0,
    HF_PROXY_CUT = 1, /* both ends are closed */
    HF_PROXY_HANG =
        2, /* nothing passes any more, either way; both ends stay open until the client gives up */
    HF_PROXY_DELAY = 3 /* passes on after 50 ms */
};

struct hf_proxy;

/* Listens at FOLDER/.s.PGSQL.5432 for clients and connects each to server_socket. NULL with errno. */
struct hf_proxy *hf_proxy_open(const char *folder, const char *server_socket);
void hf_proxy_close(struct hf_proxy *proxy);

/* Arms a fault for the next connection that is made: it happens when exactly `bytes` have passed that way. Replaces what was armed. */
void hf_proxy_arm(struct hf_proxy *proxy, enum hf_proxy_fault fault, enum hf_proxy_way way, uint64_t bytes);

/* The next `cnt` statements that begin with `statement` (NULL: connections) do not reach the server: the client gets an error with
 * this SQLSTATE. A statement's transaction is rolled back. The texts must outlive the proxy. */
void hf_proxy_answer(struct hf_proxy *proxy, const char *statement, const char *sqlstate, const char *text,
                     uint32_t cnt);

/* What happened since the last hf_proxy_arm or hf_proxy_answer. */
struct hf_proxy_seen {
    uint32_t connections_cnt;
    uint32_t faults_cnt;      /* armed faults that happened */
    uint32_t answers_cnt;     /* errors that were answered */
    uint64_t passed_bytes[2]; /* by way, of the armed connection */
};
void hf_proxy_look(struct hf_proxy *proxy, struct hf_proxy_seen *seen);

#endif
