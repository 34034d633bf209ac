/* A PostgreSQL server of a test's own: on a socket in a folder of its own and nothing else, started, stopped and killed by the
 * test. PostgreSQL refuses to run as root, so root runs it as `postgres` (or `nobody`). Programs from HOLDFAST_TEST_PG_BIN. */
#ifndef HF_TESTS_SUPPORT_SERVER_H
#define HF_TESTS_SUPPORT_SERVER_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

struct hf_server {
    char folder[64]; /* socket, data/, log */
    const char *bin;
    uid_t uid;
    gid_t gid;
    pid_t pid; /* 0: not running */
};

/* Makes a folder and a database cluster in it, superuser `postgres`, everybody trusted; settings: lines for postgresql.conf. False:
 * there is no server here (HOLDFAST_TEST_PG_BIN). The test fails when it cannot. */
bool hf_server_make(struct hf_server *server, const char *settings);
/* Removes everything; kills it first. */
void hf_server_remove(struct hf_server *server);

/* A copy of a running one by pg_basebackup, which will follow it as a standby of that name. */
void hf_server_follow(struct hf_server *standby, const struct hf_server *primary, const char *name,
                      const char *settings);

/* Starts it and waits until it answers. */
void hf_server_start(struct hf_server *server);
/* Signal to the postmaster (SIGINT: fast shutdown), and waits for its end. */
void hf_server_stop(struct hf_server *server, int signal);
/* SIGKILL to all of its processes, and waits for their end. */
void hf_server_kill(struct hf_server *server);

/* Appends lines to a file of the data folder (postgresql.conf, pg_hba.conf), or puts them in its place; reload: makes it read them. */
void hf_server_write(struct hf_server *server, const char *file, const char *lines, bool append);
void hf_server_reload(const struct hf_server *server);

/* A libpq URL. */
void hf_server_url(const struct hf_server *server, const char *user, const char *database, char *url,
                   size_t url_bytes);
/* Runs SQL as the superuser by libpq; the first value as text ("" for none, "!" when it failed and may). Static buffer. */
const char *hf_server_sql(const struct hf_server *server, const char *database, const char *sql);

#endif
