#!/bin/bash
# The command as people meet it: arguments, exit statuses, sentences, and what it leaves behind.
#
#   tests/command/run.sh HOLDFAST HOLDFASTD      a line per fault, exit status 1 when there is one
set -u

holdfast=$1
holdfastd=$2
folder=$(mktemp -d "${TMPDIR:-/tmp}/hf-command.XXXXXX")
name=command-$$
daemon=
faults=0
export TMPDIR=$folder/tmp XDG_STATE_HOME=$folder/state
mkdir "$TMPDIR"

clean_up() {
    [ -n "$daemon" ] && kill -KILL "$daemon" 2>/dev/null
    rm -rf "$folder" "/dev/shm/holdfast.$name" "/dev/shm/holdfast.$name.lock"
}
trap clean_up EXIT

fault() {
    faults=$((faults + 1))
    printf 'FAULT: %s\n' "$1"
    printf '  it said: %s\n' "$(head -c 2000 "$folder/out" "$folder/err" 2>/dev/null)"
}

# expect STATUS COMMAND...: runs it with input from $folder/in; standard output and error go to out and err.
expect() {
    local status=$1 got
    shift
    "$@" <"$folder/in" >"$folder/out" 2>"$folder/err"
    got=$?
    what=$*
    [ "$got" = "$status" ] || fault "$what: expected status $status, got $got"
}
says() { grep -qF -- "$1" "$folder/out" || fault "$what: expected on standard output: $1"; }
warns() { grep -qF -- "$1" "$folder/err" || fault "$what: expected on standard error: $1"; }
silent() { [ ! -s "$folder/out" ] || fault "$what: expected nothing on standard output"; }

cat >"$folder/good.yaml" <<'POLICY'
version: 1
currency: EUR
prices: {revision: "1", models: [{id: m, input_micros_per_mtok: 1000000, output_micros_per_mtok: 2000000}]}
tenants:
  - id: t
    limits: [{window: month, cost_micros: 10000}, {window: lifetime, invocations: 100000}]
    teams:
      - {id: u, limits: [{window: month, cost_micros: 5000}], capabilities: [{id: c, cap_micros: 1000}], keys: [{id: k}]}
POLICY
sed 's/id: u,/id: u, on_limit: queue, queue: {limit: 2, deadline_ms: 5},/' "$folder/good.yaml" >"$folder/queue.yaml"
sed 's/currency: EUR/curency: EUR/; s/cap_micros: 1000/cap_micros: 0/; s/window: month, cost_micros: 5000/window: week, cost_micros: 5000/' \
    "$folder/good.yaml" >"$folder/bad.yaml"
: >"$folder/in"
reserve='{"op":"reserve","id":"a","tenant":"t","team":"u","key":"k","capability":"c","cost_micros":700}'

# ---- options, the same for every command
for command in run check status usage store recover replay trace-gen fsck verify; do
    expect 2 "$holdfast" $command --frob
    silent
    warns "holdfast $command: unknown option --frob"
    warns "Try \`holdfast $command --help\`"
done
expect 2 "$holdfast" fsck --segment
warns 'holdfast fsck: option --segment needs a value'
expect 2 "$holdfast" verify --json=1
warns 'holdfast verify: option --json=1 takes no value'

# ---- what is no segment
echo 'somebody else needs this' >"$folder/foreign"
chmod 0600 "$folder/foreign"
expect 2 "$holdfast" fsck --segment "$folder/foreign"
warns 'is that the right name'

# ---- the command itself
expect 2 "$holdfast"
silent
warns 'Usage: holdfast COMMAND'
expect 0 "$holdfast" --help
says 'trace-gen'
expect 0 "$holdfast" --version
says 'holdfast '
expect 2 "$holdfast" stats
warns "did you mean 'status'?"
expect 2 "$holdfast" '%s%n'
for command in run check status usage fsck store trace-gen; do
    expect 0 "$holdfast" "$command" --help
    says "Usage: holdfast $command"
    cp "$folder/out" "$folder/help"
    expect 0 "$holdfast" help "$command"
    cmp -s "$folder/out" "$folder/help" || fault "holdfast help $command differs from holdfast $command --help"
    expect 2 "$holdfast" "$command" --no-such-option
    silent
done
expect 2 "$holdfast" help nothing

# ---- check
expect 0 "$holdfast" check "$folder/good.yaml"
says 'good: 1 tenants, 1 teams, 1 keys, 1 models'
expect 0 "$holdfast" check "$folder/queue.yaml"
says 'warning: on_limit: queue is not built yet'
expect 2 "$holdfast" check --strict "$folder/queue.yaml"
says ':8: tenants[0].teams[0].on_limit: queue is not built yet'
expect 2 "$holdfast" check "$folder/bad.yaml"
says "$folder/bad.yaml:2: curency"
says "$folder/bad.yaml:8: tenants[0].teams[0].limits[0].window"
says "$folder/bad.yaml:8: tenants[0].teams[0].capabilities[0].cap_micros"
expect 2 "$holdfast" check "$folder/none.yaml"
says 'cannot be read'
expect 2 "$holdfast" check
expect 2 "$holdfast" check "$folder/good.yaml" "$folder/bad.yaml"

# ---- run: what keeps it from starting
expect 2 "$holdfast" run
warns 'either --policy'
expect 2 "$holdfast" run --policy "$folder/good.yaml"
warns '--clock-ms'
expect 2 "$holdfast" run --policy "$folder/good.yaml" --clock-ms 1e3
expect 2 "$holdfast" run --policy "$folder/good.yaml" --clock-ms 13601088000000
expect 2 "$holdfast" run --policy "$folder/good.yaml" --clock-ms 1 --segment "$name"
expect 2 "$holdfast" run --segment "$name" extra
expect 2 "$holdfast" run --segment "$name"
warns "there is no segment at /dev/shm/holdfast.$name"
expect 2 "$holdfast" run --policy "$folder/good.yaml" --clock-ms 1 --store "sqlite:$folder/none.db"
warns "holdfast store init"
printf '%s\n' "$reserve" >"$folder/in"
expect 2 "$holdfast" run --policy "$folder/bad.yaml" --clock-ms 1
silent
warns "$folder/bad.yaml:2: curency"
warns "tenants[0].teams[0].capabilities[0].cap_micros"

# ---- run: lines
{
    head -c 1048577 /dev/zero | tr '\0' ' '
    printf '\n\n%s\n' "$reserve"
    printf '%s\n' '{"op":"settle","id":"nobody","usage":{"input_tokens":5,"output_tokens":7},"outcome":"failure","ref":"r1"}'
    printf '%s' '{"op":"reap"}'
} >"$folder/in"
expect 0 "$holdfast" run --policy "$folder/good.yaml" --clock-ms 1790000000000
[ "$(wc -l <"$folder/out")" = 5 ] || fault "$what: expected five answers"
says '{"op":null,"ok":false,"reason":"invalid-request","message":"the line is longer than 1048576 bytes'
says '{"op":"reserve","ok":true,"id":"a","kind":"allow"'
says '{"op":"reap","ok":true,"closed":[]}'
warns 'settle of the unknown reservation "nobody", charged nowhere: outcome failure, ref r1, input_tokens 5, output_tokens 7'
[ -z "$(ls "$TMPDIR")" ] || fault "$what: left in the temporary folder: $(ls "$TMPDIR")"

# A team that queues: what would wait is refused.
for i in 1 2 3 4 5; do printf '%s\n' "${reserve/\"a\"/\"q$i\"}" | sed 's/700/1000/'; done >"$folder/in"
printf '%s\n' "${reserve/\"a\"/\"q6\"}" >>"$folder/in"
expect 0 "$holdfast" run --policy "$folder/queue.yaml" --clock-ms 1790000000000
says '{"op":"reserve","ok":false,"id":"q6","kind":"reject"'
says '"reason":"not-built"'
! grep -F '"id":"q6"' "$folder/out" | grep -qF '"ticket"' || fault "$what: gave a ticket"
warns 'warning: on_limit: queue is not built yet'

# An answer comes before the next line is there, and a signal ends the run in order.
mkfifo "$folder/pipe"
"$holdfast" run --policy "$folder/good.yaml" --clock-ms 1790000000000 <"$folder/pipe" >"$folder/out" 2>"$folder/err" &
run=$!
exec 7>"$folder/pipe"
printf '%s\n' "$reserve" >&7
for _ in $(seq 200); do
    [ -s "$folder/out" ] && break
    sleep 0.05
done
what='holdfast run on a pipe'
says '"id":"a","kind":"allow"'
[ -n "$(ls "$TMPDIR")" ] || fault "$what: expected a temporary store while it runs"
kill -TERM "$run"
wait "$run"
[ $? = 143 ] || fault "$what: expected to end by SIGTERM"
exec 7>&-
[ -z "$(ls "$TMPDIR")" ] || fault "$what: left in the temporary folder after SIGTERM: $(ls "$TMPDIR")"

# Nobody reads: an error, and nothing is left.
yes "$reserve" | head -3000 >"$folder/in"
"$holdfast" run --policy "$folder/good.yaml" --clock-ms 1790000000000 <"$folder/in" 2>"$folder/err" | head -1 >"$folder/out"
got=${PIPESTATUS[0]}
what='holdfast run with a reader that went away'
[ "$got" = 1 ] || fault "$what: expected status 1, got $got"
warns 'cannot answer'
[ -z "$(ls "$TMPDIR")" ] || fault "$what: left in the temporary folder: $(ls "$TMPDIR")"

# ---- store, and a private segment that keeps its receipts in it
store=sqlite:$folder/kept.db
: >"$folder/in"
expect 1 "$holdfast" store show "$store"
warns 'there is no store at'
expect 0 "$holdfast" store init "$store"
says "$store"
expect 0 "$holdfast" store init "$store"
expect 0 "$holdfast" store init
says "sqlite:$XDG_STATE_HOME/holdfast/holdfast.db"
expect 0 "$holdfast" store show "$store"
says 'segments     none'
expect 1 "$holdfast" store show "sqlite:$folder"
warns 'is a folder. Name a file in it'
expect 1 "$holdfast" store init "sqlite:$folder/nowhere/kept.db"
warns "there is no folder $folder/nowhere"
expect 2 "$holdfast" store make "$store"
expect 2 "$holdfast" store init ftp://nowhere
expect 1 "$holdfast" store show 'postgresql://gate:s3cret@127.0.0.1:1/quota'
! grep -q s3cret "$folder/out" "$folder/err" || fault "$what: shows a password"
printf '%s\n' "$reserve" '{"op":"release","id":"a"}' '{"op":"receipts","id":"a"}' >"$folder/in"
expect 0 "$holdfast" run --policy "$folder/good.yaml" --clock-ms 1790000000000 --store "$store"
says '"kind":"reservation"'
says '"kind":"release"'
: >"$folder/in"
expect 0 "$holdfast" store show "$store" --segment run
says 'reservation      1'
says 'release          1'
expect 0 "$holdfast" store show "$store"
says 'segments     run'
expect 1 "$holdfast" store show "$store" --segment walk
warns "nothing of a segment 'walk'"
warns 'segments     run'

# ---- a segment that a daemon serves
expect 2 "$holdfast" status --segment "$name"
warns "there is no segment"
expect 2 "$holdfast" status
expect 2 "$holdfast" usage --segment "$name" t
expect 2 "$holdfast" usage --segment "$name"
"$holdfastd" --segment "$name" --policy "$folder/good.yaml" --store "$store" 2>"$folder/daemon" &
daemon=$!
for _ in $(seq 200); do
    "$holdfast" status --segment "$name" >/dev/null 2>&1 && break
    sleep 0.05
done
printf '%s\n' "$reserve" '{"op":"clock","advance_ms":1}' '{"op":"usage","tenant":"t","team":"u"}' '{"op":"receipts","id":"a"}' >"$folder/in"
expect 0 "$holdfast" run --segment "$name"
says '{"op":"reserve","ok":true,"id":"a"'
says '{"op":"clock","ok":false,"reason":"invalid-request"'
says '"held":700,"settled":0,"available":4300'
says '"kind":"reservation"'
: >"$folder/in"
expect 0 "$holdfast" status --segment "$name"
says 'state      ready'
says "pid $daemon"
says '1 open, 0 closed; 1 known by id'
says 'everything is committed'
says 'alarms     none'
expect 0 "$holdfast" status --segment "$name" --all
says 'below_zero '
expect 0 "$holdfast" usage --segment "$name" t u
says 'cost_micros'
grep -qE '^month +cost_micros +5000 +0 +700 +0 +4300 +20' "$folder/out" || fault "$what: expected the month of the team"
expect 0 "$holdfast" usage --segment "$name" t
grep -qE '^lifetime +invocations +100000 +0 +1 +0 +99999 +never ends' "$folder/out" || fault "$what: expected the lifetime of the tenant"
expect 0 "$holdfast" usage --segment "$name" t u k
says 'no limits of its own'
expect 1 "$holdfast" usage --segment "$name" nobody
warns 'unknown-tenant'
expect 1 "$holdfast" usage --segment "$name" t nobody
expect 1 "$holdfast" usage --segment "$name" t u nobody

kill -KILL "$daemon"
wait "$daemon" 2>/dev/null
expect 1 "$holdfast" status --segment "$name"
says 'dead: start holdfastd'
daemon=
# Without a daemon a look says what it does not know, and closings still work.
expect 0 "$holdfast" usage --segment "$name" t u
says 'The daemon has not come to the newest operations'
printf '%s\n' '{"op":"settle","id":"a","usage":{"input_tokens":1,"output_tokens":1,"cost_micros":1200},"outcome":"success"}' >"$folder/in"
expect 0 "$holdfast" run --segment "$name"
says '"kind":"settled","actual":{"tokens":2,"cost_micros":1200}'
: >"$folder/in"
expect 1 "$holdfast" status --segment "$name"
says 'unwritten  1 slots'

[ "$faults" = 0 ] || exit 1
echo 'command: everything as expected'
