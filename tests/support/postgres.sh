#!/bin/bash
# Run a command beside a private PostgreSQL that ends with it:
#
#   tests/support/postgres.sh COMMAND [ARGUMENT...]
#
# The server listens on a socket in a new folder and on nothing else. The command finds in its environment
#   HOLDFAST_TEST_PG      libpq URL of a superuser on an empty database
#   HOLDFAST_TEST_PG_BIN  folder of the server's programs, for tests that start a server of their own
# The exit status is that of the command. PostgreSQL refuses to run as root, so root runs it as `postgres`.
# It dies with this script even if that is killed, because the kernel tells it (parent death signal).
set -euo pipefail

[ $# -gt 0 ] || { sed -n '2,9s/^# \{0,1\}//p' "$0" >&2; exit 2; }

bin=$(ls -d /usr/lib/postgresql/*/bin 2>/dev/null | sort -V | tail -n 1)
if [ ! -x "$bin/postgres" ]; then
    echo "postgres.sh: no PostgreSQL server under /usr/lib/postgresql; install the package postgresql" >&2
    exit 1
fi

# Short on purpose: a socket path has at most 107 bytes.
dir=$(mktemp -d /tmp/hf-pg.XXXXXX)
as=()
if [ "$(id -u)" -eq 0 ]; then
    user=postgres
    id -u $user >/dev/null 2>&1 || user=nobody
    chown "$user" "$dir"
    as=(setpriv "--reuid=$user" "--regid=$(id -g $user)" --clear-groups)
fi

server=
stop() {
    local status=$?
    trap - EXIT
    if [ -n "$server" ]; then
        kill -INT "$server" 2>/dev/null || true
        for _ in $(seq 100); do
            kill -0 "$server" 2>/dev/null || break
            sleep 0.1
        done
        kill -QUIT "$server" 2>/dev/null || true
        wait "$server" 2>/dev/null || true
    fi
    rm -rf "$dir"
    exit $status
}
trap stop EXIT
trap 'exit 129' HUP
trap 'exit 130' INT
trap 'exit 143' TERM

cd "$dir" # a folder that the server's user may enter
"${as[@]}" "$bin/initdb" -D "$dir/data" -U postgres --auth=trust -E UTF8 --locale=C --no-sync >"$dir/initdb.log" 2>&1 ||
    { cat "$dir/initdb.log" >&2; exit 1; }
# fsync off: a test's server never survives a crash of the machine, and the tests do not measure the disk.
"${as[@]}" setpriv --pdeathsig INT "$bin/postgres" -D "$dir/data" -c listen_addresses= -c unix_socket_directories="$dir" \
    -c fsync=off -c full_page_writes=off -c shared_buffers=64MB -c max_connections=100 \
    -c log_min_messages=warning </dev/null >"$dir/server.log" 2>&1 &
server=$!
for _ in $(seq 300); do
    "$bin/pg_isready" -q -h "$dir" -U postgres && break
    kill -0 "$server" 2>/dev/null || { cat "$dir/server.log" >&2; exit 1; }
    sleep 0.1
done
"$bin/createdb" -h "$dir" -U postgres holdfast_test
cd "$OLDPWD"

export HOLDFAST_TEST_PG="postgresql://postgres@/holdfast_test?host=$dir"
export HOLDFAST_TEST_PG_BIN="$bin"
status=0
"$@" || status=$?
exit $status
