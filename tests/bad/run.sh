#!/bin/bash
# What goes wrong outside holdfast: each case must end in a sentence that says what happened and what to do, with the right
# exit status, and with nothing broken or left behind.
#
#   run.sh HOLDFAST HOLDFASTD CASE
#
# Exit status 77: skipped, with the reason.
set -euo pipefail

holdfast=$1 holdfastd=$2 case=$3
here=$(cd "$(dirname "$0")" && pwd)
policy=$here/policy.yaml
name=bad-$case-$$
segment=/dev/shm/holdfast.$name

skip() { echo "skipped: $*"; exit 77; }
die() { echo "FAILED: $*" >&2; exit 1; }

dir=$(mktemp -d "${TMPDIR:-/tmp}/hf-bad.XXXXXX")
pids=()
cleanup() {
    local status=$? pid
    trap - EXIT
    for pid in "${pids[@]}"; do
        kill -KILL "$pid" 2>/dev/null || true
        wait "$pid" 2>/dev/null || true
    done
    if [ $status -ne 0 ] && [ $status -ne 77 ]; then
        tail -n 20 "$dir"/*.out "$dir"/*.log 2>/dev/null >&2 || true
    fi
    rm -rf "$dir" /dev/shm/holdfast."$name"*
    exit $status
}
trap cleanup EXIT

url=sqlite:$dir/receipts.db

# told STATUS PATTERN... -- COMMAND...: it ends with this status within a minute, and what it says holds every pattern.
told() {
    local want=$1 status=0 patterns=() pattern
    out=$dir/told-$BASHPID.out
    shift
    while [ "$1" != -- ]; do
        patterns+=("$1")
        shift
    done
    shift
    timeout 60 "$@" >"$out" 2>&1 </dev/null || status=$?
    sed 's/^/    /' "$out"
    [ $status -eq "$want" ] || die "status $status instead of $want: $*"
    for pattern in "${patterns[@]}"; do
        grep -Eq -- "$pattern" "$out" || die "it does not say '$pattern'"
    done
}

# start LOG [OPTION...]: a daemon in the background with a new log, its pid in $daemon.
start() {
    local log=$dir/$1.log
    shift
    : >"$log"
    "$holdfastd" "$@" 2>>"$log" 9>&- &
    daemon=$!
    pids+=("$daemon")
}
serve() { start "$1" --segment "$name" --policy "${2:-$policy}" --store "$url" --slots 1024; }

# until PATTERN LOG: the log says so; at most a minute.
until_says() {
    local try
    for try in $(seq 600); do
        ! grep -Eq -- "$1" "$dir/$2.log" || return 0
        sleep 0.1
    done
    die "$2.log does not say '$1' within a minute"
}
alive() { kill -0 "$1" 2>/dev/null || die "the process has ended: $2"; }
stop() {
    local status=0
    kill -TERM "$1"
    wait "$1" || status=$?
    [ $status -eq 0 ] || die "the daemon left with $status"
}

run() { printf '%s\n' "$@" | "$holdfast" run --segment "$name"; }
reserve() {
    printf '{"op":"reserve","id":"%s","tenant":"%s","team":"%s","capability":"%s","cost_micros":1000}' \
        "$1" "${2:-acme}" "${3:-app}" "${4:-chat}"
}
admitted() { run "$(reserve "$1")" | grep -q '"ok":true' || die "a good call is not admitted: $1"; }

# ---- a policy with several faults --------------------------------------------------------------------------------

case_policy() {
    local generation line
    "$holdfast" store init "$url" >/dev/null
    cp "$policy" "$dir/policy.yaml"
    serve daemon "$dir/policy.yaml"
    until_says ' ready: ' daemon
    admitted before
    generation=$("$holdfast" status --segment "$name" | grep '^policy')

    # every fault with its line and its place, by whoever reads the file
    cp "$here/faults.yaml" "$dir/policy.yaml"
    for line in 6 10 11 15 17 18 19 21 22 24; do
        grep -q '' "$dir/policy.yaml" && echo "^$dir/policy.yaml:$line: (prices|tenants)[][a-z_0-9.]+: "
    done >"$dir/patterns"
    mapfile -t patterns <"$dir/patterns"
    told 2 "${patterns[@]}" 'refused: 11 problems' -- "$holdfast" check "$dir/policy.yaml"
    told 2 "${patterns[@]}" -- "$holdfastd" --segment "$name" --policy "$dir/policy.yaml" --store "$url"
    told 2 "${patterns[@]}" -- "$holdfastd" --segment "$name-2" --policy "$dir/policy.yaml" --store "$url"
    told 2 "${patterns[@]}" -- "$holdfast" recover --segment "$name-2" --policy "$dir/policy.yaml" --store "$url"
    told 2 "${patterns[@]}" -- "$holdfast" run --policy "$dir/policy.yaml" --clock-ms 0
    told 2 'No such file' -- "$holdfastd" --segment "$name" --policy "$dir/none.yaml" --store "$url"
    [ ! -e "$segment-2" ] || die "a refused policy made a segment"

    # and the one that runs has seen nothing of it
    alive "$daemon" "the daemon of the good policy"
    admitted after
    [ "$generation" = "$("$holdfast" status --segment "$name" | grep '^policy')" ] || die "the policy in force changed"
    run '{"op":"usage","tenant":"acme"}' | grep -q '"limit":1000000,.*"held":2000,' || die "the limit in force changed"
    stop "$daemon"
}

# ---- a store that is down at start -------------------------------------------------------------------------------

case_store_down() {
    local as=() bin=${HOLDFAST_TEST_PG_BIN:-} worker server
    [ -n "$bin" ] || skip "HOLDFAST_TEST_PG_BIN is not set"
    if [ "$(id -u)" -eq 0 ]; then
        as=(setpriv --reuid=postgres --regid="$(id -g postgres)" --clear-groups)
        chown postgres "$dir"
    fi
    (cd "$dir" && "${as[@]}" "$bin/initdb" -D "$dir/data" -U postgres --auth=trust -E UTF8 --locale=C --no-sync >initdb.log 2>&1)
    url="postgresql://postgres@/postgres?host=$dir"
    server_start() {
        (cd "$dir" && exec "${as[@]}" setpriv --pdeathsig INT "$bin/postgres" -D "$dir/data" -c listen_addresses= \
            -c unix_socket_directories="$dir" -c fsync=off </dev/null >>"$dir/server.log" 2>&1 9>&-) &
        server=$!
        pids+=("$server")
    }
    up() {
        local try
        for try in $(seq 300); do
            ! "$bin/pg_isready" -q -h "$dir" -U postgres || return 0
            sleep 0.1
        done
        die "the test's own server does not start"
    }
    server_stop() {
        kill -QUIT "$server"
        wait "$server" || true
    }

    # Down from the beginning: no store, no segment, no quota.
    told 1 'cannot make the store' -- "$holdfast" store init "$url"
    serve daemon
    until_says 'warning not ready, trying again: .*(connect|server)' daemon
    told 2 "no segment" -- "$holdfast" status --segment "$name"
    alive "$daemon" "it should wait for its store"
    [ ! -e "$segment" ] || die "a segment without a store"
    [ "$(grep -c 'not ready' "$dir/daemon.log")" -le 2 ] || die "it says the same again and again"
    kill -KILL "$daemon"
    wait "$daemon" 2>/dev/null || true
    server_start
    up
    "$holdfast" store init "$url" >/dev/null
    serve daemon
    until_says ' ready: ' daemon
    admitted one
    run '{"op":"usage","tenant":"acme"}' | grep -q '"held":1000,' || die "nothing is held"

    # Down at the next start, and the segment is lost: the worker inside is refused, nobody is shown an empty quota.
    mkfifo "$dir/to"
    "$holdfast" run --segment "$name" <"$dir/to" >"$dir/worker.out" 2>"$dir/worker.log" &
    worker=$!
    pids+=("$worker")
    exec 9>"$dir/to"
    reserve two >&9 && echo >&9
    until_out() {
        local try
        for try in $(seq 300); do
            [ "$(wc -l <"$dir/worker.out")" -lt "$1" ] || return 0
            sleep 0.1
        done
        die "the worker does not answer"
    }
    until_out 1
    kill -KILL "$daemon"
    wait "$daemon" 2>/dev/null || true
    server_stop
    rm "$segment"
    serve daemon
    until_says 'warning not ready, trying again' daemon
    sleep 3
    reserve three >&9 && echo >&9
    until_out 2
    sed -n 2p "$dir/worker.out" | grep -q '"ok":false.*"reason":"not-ready"' || die "the worker of a lost segment: $(sed -n 2p "$dir/worker.out")"
    exec 9>&-
    wait "$worker" || true
    told 2 "no segment" -- "$holdfast" usage --segment "$name" acme

    # And it comes up when the store does, by itself.
    server_start
    up
    until_says ' ready: ' daemon
    run '{"op":"usage","tenant":"acme"}' >"$dir/usage.out"
    grep -Eq '"held":[12]000,' "$dir/usage.out" || die "what was held is gone"
    run '{"op":"settle","id":"one","usage":{"input_tokens":1,"output_tokens":1},"outcome":"success"}' | grep -q '"ok":true' ||
        die "what was open is not known any more"

    # Down while it runs: calls go on, and nothing is lost.
    server_stop
    admitted four
    until_says 'receipts wait, nothing is lost' daemon
    server_start
    up
    for _ in $(seq 300); do
        ! "$holdfast" status --segment "$name" | grep -q 'everything is committed' || break
        sleep 0.1
    done
    told 0 'everything is committed' -- "$holdfast" status --segment "$name"
    stop "$daemon"
    # `two` was answered a moment before the daemon was killed and its segment was lost
    told 0 'reservation +[23]$' -- "$holdfast" store show "$url" --segment "$name"
    server_stop
}

# ---- a segment of another build ----------------------------------------------------------------------------------

case_build() {
    local ours
    "$holdfast" store init "$url" >/dev/null
    serve daemon
    until_says ' ready: ' daemon
    admitted one
    stop "$daemon"
    ours=$(od -An -tx8 -j16 -N8 "$segment" | tr -d ' ')
    printf '\x01\x02\x03\x04\x05\x06\x07\x08' | dd of="$segment" bs=1 seek=16 conv=notrunc status=none
    cp "$segment" "$dir/as-it-was"
    for command in "$holdfast status" "$holdfast run" "$holdfast usage acme" "$holdfastd --policy $policy --store $url"; do
        told 2 "another build" 0807060504030201 "$ours" "run the same build" -- $command --segment "$name"
    done
    told 2 'version [0-9]+ and this program knows' -- sh -c "
        dd if='$dir/as-it-was' of='$segment' status=none
        printf '\\377' | dd of='$segment' bs=1 seek=8 conv=notrunc status=none
        exec '$holdfast' status --segment '$name'"
    dd if="$dir/as-it-was" of="$segment" status=none
    told 2 "another build" -- "$holdfastd" --policy "$policy" --store "$url" --segment "$name"
    cmp "$segment" "$dir/as-it-was" || die "somebody wrote into a segment of another build"
    # what the runbook says: nobody uses it, so remove it; the store knows everything
    rm "$segment"
    serve daemon
    until_says ' ready: ' daemon
    run '{"op":"usage","tenant":"acme"}' | grep -q '"held":1000,' || die "what was held is gone"
    stop "$daemon"
}

# ---- no room in /dev/shm -----------------------------------------------------------------------------------------

case_room() {
    local status=0
    # in a mount namespace of its own: nothing outside sees the small file system
    unshare -m true 2>/dev/null || skip "not root: no mount namespace for a small /dev/shm"
    "$holdfast" store init "$url" >/dev/null
    cat >"$dir/inside.sh" <<'SH'
set -eu
mount -t tmpfs -o size=2m,mode=1777 tmpfs /dev/shm
status=0
"$@" || status=$?
[ "$(ls -A /dev/shm | grep -v '\.lock$')" = "" ] || { ls -lA /dev/shm; echo "something half-made is left"; }
[ "$(du -sk /dev/shm | cut -f1)" -lt 64 ] || echo "room is still taken"
exit $status
SH
    told 2 'needs [0-9]+ MiB' 'has [012] MiB available' 'shm-size|fewer slots' -- unshare -m sh "$dir/inside.sh" \
        "$holdfastd" --segment "$name" --policy "$policy" --store "$url"
    ! grep -E 'half-made|still taken' "$out" || die "it left something"
    # taken by others: what stat promised may be gone when it is asked for
    told 2 'needs [0-9]+ MiB|ran out of room' -- unshare -m sh "$dir/inside.sh" \
        sh -c 'dd if=/dev/zero of=/dev/shm/others bs=64k count=28 status=none; status=0; "$@" || status=$?; rm /dev/shm/others
               exit $status' sh "$holdfastd" --segment "$name" --policy "$policy" --store "$url" --slots 1024
    ! grep -E 'half-made|still taken' "$out" || die "it left something"
    # and what fits is served in the same place
    told 0 ' ready: ' 'everything is committed' -- unshare -m sh "$dir/inside.sh" \
        sh -c 'log=$1; shift; "$@" 2>"$log" & daemon=$!; try=0
               until grep -q " ready: " "$log" || [ $try -eq 300 ]; do sleep 0.1; try=$((try + 1)); done
               kill -TERM $daemon; status=0; wait $daemon || status=$?; cat "$log"; rm -f /dev/shm/*; exit $status' sh "$dir/fits.log" \
        "$holdfastd" --segment "$name" --policy "$policy" --store "$url" --slots 64 --owners 8
    [ ! -e "$segment" ] || die "it was made outside the namespace"
}

# ---- the name is a link, or belongs to somebody else -------------------------------------------------------------

case_foreign() {
    local mine
    "$holdfast" store init "$url" >/dev/null
    # a link, to nothing, to a file, and for the lock file
    for target in "$dir/target" "$dir/nothing"; do
        echo precious >"$dir/target"
        rm -f "$segment"
        ln -s "$target" "$segment"
        told 2 'symbolic link' 'remove it' -- "$holdfastd" --segment "$name" --policy "$policy" --store "$url"
        told 2 'symbolic link' -- "$holdfast" run --segment "$name"
        told 2 'symbolic link' -- "$holdfast" status --segment "$name"
        [ "$(cat "$dir/target")" = precious ] && [ ! -e "$dir/nothing" ] || die "it followed the link"
        [ -L "$segment" ] || die "it removed the link"
    done
    rm "$segment"
    rm -f "$segment.lock"
    ln -s "$dir/target" "$segment.lock"
    told 2 'is a symbolic link, and a lock file is never' 'remove it' -- "$holdfastd" --segment "$name" --policy "$policy" --store "$url"
    [ "$(cat "$dir/target")" = precious ] || die "it followed the link of the lock file"
    rm "$segment.lock"
    # a hard link, a folder, a file that everybody may write
    ln "$dir/target" "$segment" 2>/dev/null || { echo precious >"$segment.other" && ln "$segment.other" "$segment"; }
    told 2 'hard links' -- "$holdfastd" --segment "$name" --policy "$policy" --store "$url"
    rm -f "$segment" "$segment.other"
    mkdir "$segment"
    told 2 'no regular file|directory' -- "$holdfastd" --segment "$name" --policy "$policy" --store "$url"
    rmdir "$segment"
    serve daemon
    until_says ' ready: ' daemon
    stop "$daemon"
    chmod 0666 "$segment"
    told 2 'written by everybody' 'remove it' -- "$holdfastd" --segment "$name" --policy "$policy" --store "$url"
    chmod 0660 "$segment"
}

case_owner() {
    [ "$(id -u)" -eq 0 ] || skip "not root: cannot make a file of somebody else"
    "$holdfast" store init "$url" >/dev/null
    serve daemon
    until_says ' ready: ' daemon
    stop "$daemon"
    chown 54321:54321 "$segment"
    told 2 'belongs to user 54321, group 54321 \(mode 0660\)' 'run as that user' -- \
        "$holdfastd" --segment "$name" --policy "$policy" --store "$url"
    told 2 'belongs to user 54321' -- "$holdfast" run --segment "$name"
    # and the other way round: a stranger meets root's segment
    chown 0:0 "$segment"
    chmod 0755 "$dir"
    told 2 'user \(54321\) may not write' 'add the user to that group' -- setpriv --reuid=54321 --regid=54321 --clear-groups \
        "$holdfast" status --segment "$name"
    # unless its group is the stranger's
    chown 0:54321 "$segment" "$segment.lock"
    told 1 'state +ready' -- setpriv --reuid=54321 --regid=54321 --clear-groups "$holdfast" status --segment "$name"
}

# ---- an unknown tenant -------------------------------------------------------------------------------------------

case_tenant() {
    "$holdfast" store init "$url" >/dev/null
    serve daemon
    until_says ' ready: ' daemon
    run "$(reserve a nobody)" "$(reserve b ACME)" "$(reserve c acme nobody)" "$(reserve d acme app nothing)" \
        '{"op":"usage","tenant":"nobody"}' '{"op":"meters","tenant":"nobody"}' \
        '{"op":"credit","tenant":"nobody","team":"app","window":"month","micros":5,"reason":"x"}' \
        '{"op":"usage","tenant":"acme"}' >"$dir/answers.out"
    cat "$dir/answers.out"
    for reason in unknown-tenant unknown-tenant unknown-team unknown-capability unknown-tenant unknown-tenant unknown-tenant; do
        echo "\"reason\":\"$reason\""
    done >"$dir/wanted"
    grep -o '"reason":"[^"]*"' "$dir/answers.out" | diff - "$dir/wanted" || die "other answers"
    grep '"message":"the policy has no such tenant: check the spelling' "$dir/answers.out" >/dev/null || die "no sentence tells what to do"
    tail -n 1 "$dir/answers.out" | grep -q '"held":0,"settled":0,' || die "something is held"
    told 1 'unknown-tenant: the policy has no such tenant: check the spelling' -- "$holdfast" usage --segment "$name" nobody
    stop "$daemon"
}

# ---- a store that another daemon of the same name uses -----------------------------------------------------------

case_taken() {
    local first same
    taken() {
        "$holdfast" store init "$url" >/dev/null
        serve daemon
        first=$daemon
        until_says ' ready: ' daemon
        # the same segment, and another one (as another host has it) under the same name of the store; both wait a while for
        # the lock, since a daemon that was killed holds it for a moment
        told 2 "$name" 'another daemon uses' 'Stop it, or' -- \
            "$holdfastd" --segment "$name" --policy "$policy" --store "$url" &
        same=$!
        told 2 "$name" 'another daemon uses' 'Stop it, or' -- \
            "$holdfastd" --segment "$name-2" --store-name "$name" --policy "$policy" --store "$url" &
        wait $same
        wait $!
        [ ! -e "$segment-2" ] || die "the second daemon made a segment"
        alive "$first" "the first daemon"
        admitted "one-$1"
        # another name in the same store is another quota
        start second --segment "$name-2" --policy "$policy" --store "$url" --slots 1024
        until_says ' ready: ' second
        stop "$daemon"
        stop "$first"
        rm -f "$segment" "$segment-2"
    }
    taken sqlite
    if [ -z "${HOLDFAST_TEST_PG:-}" ]; then
        echo "without PostgreSQL: HOLDFAST_TEST_PG is not set"
        return 0
    fi
    url=${HOLDFAST_TEST_PG/holdfast_test/$name}
    [ "$url" != "$HOLDFAST_TEST_PG" ] || die "HOLDFAST_TEST_PG names another database than holdfast_test"
    psql -qX "$HOLDFAST_TEST_PG" -c "CREATE DATABASE \"$name\""
    taken postgres
    psql -qX "$HOLDFAST_TEST_PG" -c "DROP DATABASE \"$name\" WITH (FORCE)"
}

# ---- a store that is none ----------------------------------------------------------------------------------------

case_store() {
    told 2 'store init' -- "$holdfastd" --segment "$name" --policy "$policy" --store "$url"
    [ ! -e "$dir/receipts.db" ] || [ ! -s "$dir/receipts.db" ] || die "a mistyped URL began a store"
    echo "this is no database, it is a letter to my aunt, and long enough to have a header of its own" >"$dir/receipts.db"
    told 2 'receipts.db' -- "$holdfastd" --segment "$name" --policy "$policy" --store "$url"
    grep -q 'my aunt' "$dir/receipts.db" || die "it wrote into a file that is no store"
    told 2 'URL|sqlite:|postgresql' -- "$holdfastd" --segment "$name" --policy "$policy" --store mysql://somewhere
    [ ! -e "$segment" ] || die "a segment without a store"
}

"case_${case//-/_}"
echo "ok: $case"
