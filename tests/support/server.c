#include "tests/support/server.h"

#include <dirent.h>
#include <fcntl.h>
#include <grp.h>
#include <pwd.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <libpq-fe.h>
#include <cmocka.h>

#define PATIENCE_MS 90000

static void pause_ms(unsigned ms)
{
    (void)usleep(ms * 1000);
}

/* Runs a program of the server's as its user, output into the log. The child. */
static pid_t spawn(const struct hf_server *server, const char *program, char *const argv[])
{
    char path[256];
    char log[96];
    pid_t child = fork();

    assert_true(child >= 0);
    if (child > 0) {
        return child;
    }
    (void)snprintf(path, sizeof(path), "%s/%s", server->bin, program);
    (void)snprintf(log, sizeof(log), "%s/log", server->folder);
    if (server->uid != getuid() &&
        (setgroups(0, NULL) != 0 || setgid(server->gid) != 0 || setuid(server->uid) != 0)) {
        _exit(126);
    }
    (void)prctl(PR_SET_PDEATHSIG, SIGINT);
    int out = open(log, O_WRONLY | O_CREAT | O_APPEND, 0600);

    (void)dup2(out, STDOUT_FILENO);
    (void)dup2(out, STDERR_FILENO);
    (void)chdir(server->folder);
    (void)execv(path, argv);
    _exit(127);
}

static void run(const struct hf_server *server, const char *program, char *const argv[])
{
    int status = 1;
    pid_t child = spawn(server, program, argv);

    assert_int_equal(waitpid(child, &status, 0), child);
    if (status != 0) {
        fail_msg("%s failed: look at %s/log", program, server->folder);
    }
}

/* An empty folder that the server's user owns. */
static bool make_folder(struct hf_server *server)
{
    const struct passwd *user;

    memset(server, 0, sizeof(*server));
    server->bin = getenv("HOLDFAST_TEST_PG_BIN");
    if (server->bin == NULL || server->bin[0] == '\0') {
        return false;
    }
    server->uid = getuid();
    server->gid = getgid();
    (void)snprintf(server->folder, sizeof(server->folder), "/tmp/hf-sv.XXXXXX");
    assert_non_null(mkdtemp(server->folder));
    if (server->uid == 0) {
        user = getpwnam("postgres");
        user = user == NULL ? getpwnam("nobody") : user;
        assert_non_null(user);
        server->uid = user->pw_uid;
        server->gid = user->pw_gid;
        assert_int_equal(chown(server->folder, server->uid, server->gid), 0);
    }
    return true;
}

static void write_settings(struct hf_server *server, const char *settings)
{
    char lines[1024];

    (void)snprintf(
        lines, sizeof(lines),
        "listen_addresses = ''\nunix_socket_directories = '%s'\nfsync = off\n"
        "full_page_writes = off\nshared_buffers = 16MB\nmax_connections = 20\nlog_min_messages = warning\n%s\n",
        server->folder, settings == NULL ? "" : settings);
    hf_server_write(server, "postgresql.conf", lines, true);
}

bool hf_server_make(struct hf_server *server, const char *settings)
{
    char data[96];

    if (!make_folder(server)) {
        return false;
    }
    (void)snprintf(data, sizeof(data), "%s/data", server->folder);
    char *const argv[] = {"initdb", "-D",   data,         "-U",        "postgres", "--auth=trust",
                          "-E",     "UTF8", "--locale=C", "--no-sync", NULL};

    run(server, "initdb", argv);
    write_settings(server, settings);
    return true;
}

void hf_server_follow(struct hf_server *standby, const struct hf_server *primary, const char *name,
                      const char *settings)
{
    char data[96];
    char url[256];
    char lines[512];

    assert_true(make_folder(standby));
    (void)snprintf(data, sizeof(data), "%s/data", standby->folder);
    hf_server_url(primary, "postgres", "postgres", url, sizeof(url));
    char *const argv[] = {"pg_basebackup", "-D",        data, "-d",     url, "-c",
                          "fast",          "--no-sync", "-X", "stream", NULL};

    run(standby, "pg_basebackup", argv);
    hf_server_write(standby, "standby.signal", "", true);
    (void)snprintf(lines, sizeof(lines),
                   "unix_socket_directories = '%s'\nhot_standby = on\n"
                   "primary_conninfo = 'host=%s user=postgres application_name=%s'\n%s\n",
                   standby->folder, primary->folder, name, settings == NULL ? "" : settings);
    hf_server_write(standby, "postgresql.conf", lines, true);
}

void hf_server_write(struct hf_server *server, const char *file, const char *lines, bool append)
{
    char path[160];

    (void)snprintf(path, sizeof(path), "%s/data/%s", server->folder, file);
    FILE *out = fopen(path, append ? "ae" : "we");

    assert_non_null(out);
    assert_true(fputs(lines, out) >= 0);
    assert_int_equal(fclose(out), 0);
    if (server->uid != getuid()) {
        assert_int_equal(chown(path, server->uid, server->gid), 0);
    }
}

void hf_server_reload(const struct hf_server *server)
{
    assert_int_equal(kill(server->pid, SIGHUP), 0);
    pause_ms(300); /* the postmaster reads first, and new sessions come of it */
}

void hf_server_start(struct hf_server *server)
{
    char data[96];
    char url[256];

    (void)snprintf(data, sizeof(data), "%s/data", server->folder);
    hf_server_url(server, "postgres", "postgres", url, sizeof(url));
    for (int waited_ms = 0; waited_ms < PATIENCE_MS; waited_ms += 50) {
        char *const argv[] = {"postgres", "-D", data, NULL};

        /* After SIGKILL the shared memory of the one before may be in use for a moment: then it ends, and is started again. */
        if (server->pid == 0) {
            server->pid = spawn(server, "postgres", argv);
        }
        pause_ms(50);
        if (waitpid(server->pid, NULL, WNOHANG) == server->pid) {
            server->pid = 0;
            continue;
        }
        PGPing ping = PQping(url);

        if (ping == PQPING_OK) {
            return;
        }
    }
    fail_msg("the server does not start: look at %s/log", server->folder);
}

void hf_server_stop(struct hf_server *server, int signal)
{
    if (server->pid != 0) {
        (void)kill(server->pid, signal);
        (void)waitpid(server->pid, NULL, 0);
        server->pid = 0;
    }
}

/* The parent of a process, 0 when it is gone. */
static pid_t parent_of(pid_t pid)
{
    char path[64];
    char line[512] = "";

    (void)snprintf(path, sizeof(path), "/proc/%d/stat", (int)pid);
    FILE *in = fopen(path, "re");

    if (in == NULL) {
        return 0;
    }
    const char *got = fgets(line, sizeof(line), in);
    const char *name_end = got == NULL ? NULL : strrchr(line, ')');

    (void)fclose(in);
    return name_end == NULL ? 0 : (pid_t)strtol(name_end + 4, NULL, 10);
}

void hf_server_kill(struct hf_server *server)
{
    pid_t children[128];
    size_t cnt = 0;

    if (server->pid == 0) {
        return;
    }
    (void)kill(server->pid, SIGSTOP); /* no new ones meanwhile */
    DIR *dir = opendir("/proc");
    const struct dirent *entry;

    while (dir != NULL && (entry = readdir(dir)) != NULL) {
        pid_t pid = (pid_t)strtol(entry->d_name, NULL, 10);

        if (pid > 1 && cnt < 128 && parent_of(pid) == server->pid) {
            children[cnt++] = pid;
        }
    }
    if (dir != NULL) {
        (void)closedir(dir);
    }
    (void)kill(server->pid, SIGKILL);
    for (size_t i = 0; i < cnt; i++) {
        (void)kill(children[i], SIGKILL);
    }
    (void)waitpid(server->pid, NULL, 0);
    server->pid = 0;
}

void hf_server_remove(struct hf_server *server)
{
    char command[128];

    if (server->folder[0] == '\0') {
        return;
    }
    hf_server_kill(server);
    (void)snprintf(command, sizeof(command), "rm -rf %s", server->folder);
    assert_int_equal(system(command), 0); /* NOLINT: the test's own folder */
    server->folder[0] = '\0';
}

void hf_server_url(const struct hf_server *server, const char *user, const char *database, char *url,
                   size_t url_bytes)
{
    (void)snprintf(url, url_bytes, "postgresql://%s@/%s?host=%s", user, database, server->folder);
}

const char *hf_server_sql(const struct hf_server *server, const char *database, const char *sql)
{
    static char value[256];
    char url[256];

    hf_server_url(server, "postgres", database, url, sizeof(url));
    PGconn *conn = PQconnectdb(url);
    PGresult *result = PQexec(conn, sql);
    ExecStatusType status = PQresultStatus(result);

    value[0] = '\0';
    if (status != PGRES_COMMAND_OK && status != PGRES_TUPLES_OK) {
        print_message("%s: %s\n", sql, PQerrorMessage(conn));
        (void)snprintf(value, sizeof(value), "!");
    } else if (PQntuples(result) > 0 && PQnfields(result) > 0) {
        (void)snprintf(value, sizeof(value), "%s", PQgetvalue(result, 0, 0));
    }
    PQclear(result);
    PQfinish(conn);
    return value;
}
