#!/bin/bash
# Real traffic through real processes that are killed on the way, and an account of it to the micro.
#
#   run.sh HOLDFAST HOLDFASTD SHARED CASE STORE [TRACE]
#
# CASE     kills TRACE  at full speed, four workers, workers and daemon killed; the receipts against an oracle of their own
#          timed TRACE  the trace's own times, faster, one daemon killed
#          rebuilt      the segment is lost in the middle of the day: everything is there again, exactly
#          removed      the segment's file is removed while workers work
#          under-way    the same, and the daemon is killed
# STORE    sqlite, or postgres (needs HOLDFAST_TEST_PG)
# TRACE    name of a trace below SHARED/traces, without .csv
# Exit status 77: skipped.
set -euo pipefail

holdfast=$1 holdfastd=$2 shared=$3 case=$4 store=$5 trace=${6:-}
here=$(cd "$(dirname "$0")" && pwd)
policy=$here/policy.yaml
traces=$shared/traces
name=replay-$case-$store-$$

skip() { echo "skipped: $*"; exit 77; }
die() { echo "FAILED: $*" >&2; exit 1; }
[ -d "$traces" ] || skip "no traces in $traces"
command -v sqlite3 >/dev/null || skip "sqlite3 is not installed"
[ "$store" != postgres ] || [ -n "${HOLDFAST_TEST_PG:-}" ] || skip "HOLDFAST_TEST_PG is not set"

dir=$(mktemp -d "${TMPDIR:-/tmp}/hf-replay.XXXXXX")
daemon=
cleanup() {
    local status=$?
    trap - EXIT
    if [ -n "$daemon" ]; then
        kill -KILL "$daemon" 2>/dev/null || true
        wait "$daemon" 2>/dev/null || true
    fi
    if [ $status -ne 0 ] && [ $status -ne 77 ]; then
        tail -n 40 "$dir"/*.out "$dir"/*.log 2>/dev/null >&2 || true
    fi
    rm -f "/dev/shm/holdfast.$name" "/dev/shm/holdfast.$name.lock"
    rm -rf "$dir"
    [ "$store" != postgres ] || psql -qX "$HOLDFAST_TEST_PG" -c "DROP DATABASE IF EXISTS \"$name\" WITH (FORCE)" || true
    exit $status
}
trap cleanup EXIT
export TMPDIR=$dir # what replay keeps goes with it

# make_store: a new one, in $url.
make_store() {
    if [ "$store" = postgres ]; then
        psql -qX "$HOLDFAST_TEST_PG" -c "DROP DATABASE IF EXISTS \"$name\" WITH (FORCE)" -c "CREATE DATABASE \"$name\"" 2>/dev/null
        url=${HOLDFAST_TEST_PG/holdfast_test/$name}
        [ "$url" != "$HOLDFAST_TEST_PG" ] || die "HOLDFAST_TEST_PG names another database than holdfast_test"
    else
        rm -f "$dir"/receipts.db*
        url=sqlite:$dir/receipts.db
    fi
    "$holdfast" store init "$url" >"$dir/init.out"
}

columns="seq, kind, reservation_seq, window_ms, held_invocations, held_tokens, held_cost_micros, charged_invocations,
    charged_tokens, charged_cost_micros, hold_tokens, hold_cost_micros, input_tokens, max_output_tokens,
    input_micros_per_mtok, output_micros_per_mtok, cached_input_micros_per_mtok, cache_write_input_micros_per_mtok,
    model_max_output_tokens, usage_input_tokens, usage_output_tokens, actual_tokens, actual_cost_micros, released_tokens,
    released_cost_micros, overage_tokens, overage_cost_micros, conflict, dispatched, late, admission, cost_source, outcome,
    id, tenant, team, key, capability, model, model_asked"

# receipts SEGMENT: every receipt of the segment, as CSV with a header line.
receipts() {
    local from="receipt WHERE segment_id = (SELECT segment_id FROM segment WHERE name = '$1') ORDER BY seq"
    if [ "$store" = postgres ]; then
        PGOPTIONS='-c search_path=holdfast' psql -qX --csv "$url" -c "SELECT $columns FROM $from"
    else
        sqlite3 -readonly -csv -header "${url#sqlite:}" "SELECT $columns FROM $from"
    fi
}

# only_segment: the one segment name of a store that a replay of its own has made.
only_segment() {
    if [ "$store" = postgres ]; then
        psql -qXAt "$url" -c 'SELECT name FROM holdfast.segment'
    else
        sqlite3 -readonly "${url#sqlite:}" 'SELECT name FROM segment'
    fi
}

# field PATTERN N: the N-th word of the line of the table that starts so.
field() { awk -v n="$2" -v pattern="^ *$1" '$0 ~ pattern { print $n; exit }' "$dir/replay.out"; }

# refusals LAYER: how many of it.
refusals() { awk -v layer="$1" '$1 == "refused" && $2 == layer { sum += $4 } END { print sum + 0 }' "$dir/replay.out"; }

# expect NUMBER SENTENCE: the number is above zero.
expect() { [ "${1:-0}" -gt 0 ] || die "expected $2, there is none"; }

same() { [ "$1" = "$2" ] || die "$3: '$1' and '$2'"; }

replay() {
    local status=0
    "$holdfast" replay "$@" --daemon "$holdfastd" >"$dir/replay.out" 2>"$dir/replay.log" || status=$?
    cat "$dir/replay.out"
    return $status
}

# oracle TRACE: the receipts against the trace, by rules and not by the code that made them.
oracle() {
    local first=2 found
    case $1 in *burstgpt*) first=3 ;; esac
    {
        echo input,output
        tail -n +2 "$1" | tr -d '\r' | grep -v '^$' | cut -d, -f$first,$((first + 1))
    } >"$dir/trace.csv"
    receipts "$(only_segment)" >"$dir/receipts.csv"
    rm -f "$dir/oracle.db"
    # numbers: columns without a type keep text, and '9' > '10'
    sqlite3 "$dir/oracle.db" >/dev/null <<SQL
CREATE TABLE trace (input INTEGER, output INTEGER);
CREATE TABLE r ($(tr -d '\n' <<<"$columns" | sed 's/\([a-z_]*_\(tokens\|micros\|mtok\|ms\|seq\|invocations\)\)/\1 INTEGER/g; s/^seq/seq INTEGER/'));
.import --csv --skip 1 $dir/trace.csv trace
.import --csv --skip 1 $dir/receipts.csv r
SQL
    sqlite3 "$dir/oracle.db" <"$here/oracle.sql" >"$dir/oracle.out"
    found=$(wc -l <"$dir/oracle.out")
    [ "$found" -eq 0 ] || die "the receipts break $found rules: $(head -n 5 "$dir/oracle.out")"
    # the table says the same sums as the receipts
    same "$(sqlite3 "$dir/oracle.db" 'SELECT count(*) FROM reservation')" "$(field reservations 2)" "reservations"
    same "$(sqlite3 "$dir/oracle.db" "SELECT count(*) FROM closing WHERE kind IN ('settlement', 'late_settlement')")" \
        "$(awk '$1 == "reservations" { for (i = 1; i < NF; i++) if ($i == "settlements") print $(i + 1) + 0 }' "$dir/replay.out")" \
        "settlements"
    same "$(sqlite3 "$dir/oracle.db" 'SELECT sum(charged_tokens) FROM r')" "$(field charged 3)" "tokens charged"
    same "$(sqlite3 "$dir/oracle.db" 'SELECT sum(charged_cost_micros) FROM r')" "$(field charged 5)" "micros charged"
    same "$(sqlite3 "$dir/oracle.db" 'SELECT count(*) FROM reservation WHERE seq NOT IN (SELECT reservation_seq FROM closing)')" 0 \
        "reservations that nobody closed"
}

# Kills come by the clock, and full speed is over with an hour in a twentieth of a second: so it is ten such hours. A machine
# that holds the killer up gets another run, with another seed. Each must be exact.
case_kills() {
    local seed workers daemons asked rows killed=no hours=$dir/$trace.csv
    head -n 1 "$traces/$trace.csv" >"$hours"
    # a trace need not end with its line
    for _ in $(seq 10); do tail -n +2 "$traces/$trace.csv" && echo; done | sed '/^\r*$/d' >>"$hours"
    for seed in 1 2 3 4 5; do
        make_store
        replay "$hours" --policy "$policy" --store "$url" --workers 4 --speed max --kill-every 0.01 \
            --kill-daemon-every 0.05 --ttl-ms 3000 --seed $seed || die "replay ended with $?"
        same "$(field mismatch 2)" 0 mismatch
        oracle "$hours"
        read -r workers daemons < <(sed -n 's/.*killed: workers \([0-9]*\), daemon \([0-9]*\)$/\1 \2/p' "$dir/replay.out")
        # a worker may be killed between taking a row and asking for it
        asked=$(field requests 2) rows=$(($(grep -c . "$hours") - 1))
        [ "$asked" -le "$rows" ] && [ "$asked" -ge $((rows - workers)) ] || die "$asked requests of $rows rows, $workers kills"
        case $trace in
        burstgpt*) expect "$(sqlite3 "$dir/oracle.db" "SELECT count(*) FROM closing WHERE outcome = 'failure'")" "failed calls" ;;
        *)
            for layer in request key team tenant; do
                expect "$(refusals $layer)" "refusals of layer $layer"
            done
            expect "$(field degraded 2)" "degraded calls"
            ;;
        esac
        # ten samples of 21 rows may be over before anything can be killed
        case $trace in burstgpt*) return 0 ;; esac
        if [ "$workers" -ge 3 ] && [ "$daemons" -ge 1 ]; then
            killed=yes
            break
        fi
    done
    same $killed yes "several workers and the daemon killed in one of five runs"
    expect "$(sqlite3 "$dir/oracle.db" "SELECT count(*) FROM closing WHERE kind IN ('expiry', 'retention')")" \
        "holds of killed workers that were reaped"
}

# 6 seconds of an hour; the daemon is killed in the third and is back before the end.
case_timed() {
    make_store
    replay "$traces/$trace.csv" --policy "$policy" --store "$url" --workers 4 --speed 600 --kill-daemon-every 3 \
        --ttl-ms 60000 || die "replay ended with $?"
    same "$(field mismatch 2)" 0 mismatch
    expect "$(sed -n 's/.*daemon \([0-9]*\)$/\1/p' "$dir/replay.out" | head -n 1)" "a killed daemon"
    oracle "$traces/$trace.csv"
}

# start_daemon [OPTION...]: and wait until workers may come.
start_daemon() {
    "$holdfastd" --segment "$name" --policy "$policy" --store "$url" --slots 16384 "$@" 2>>"$dir/daemon.log" &
    daemon=$!
    for _ in $(seq 600); do
        ! "$holdfast" status --segment "$name" >/dev/null 2>&1 || return 0
        kill -0 "$daemon" 2>/dev/null || die "the daemon ended by itself"
        sleep 0.1
    done
    die "the daemon's segment is not open after a minute"
}

lose_segment() {
    kill -KILL "$daemon"
    wait "$daemon" 2>/dev/null || true
    daemon=
    rm "/dev/shm/holdfast.$name"
}

# run OPERATION...: each a JSON object; the answers, one a line.
run() { printf '%s\n' "$@" | "$holdfast" run --segment "$name"; }

# What the segment says of everything: limits of every layer (but of windows that pass while the test runs) and meters.
world() {
    {
        for layer in '"tenant":"bank"' '"tenant":"shop"' '"tenant":"lab"' '"tenant":"bank","team":"fraud"' \
            '"tenant":"bank","team":"desk"' '"tenant":"shop","team":"support"' '"tenant":"lab","team":"bulk"' \
            '"tenant":"bank","team":"fraud","key":"batch"' '"tenant":"bank","team":"fraud","key":"live"'; do
            echo "{\"op\":\"usage\",$layer}"
        done
        echo '{"op":"meters"}'
    } | "$holdfast" run --segment "$name" | sed 's/{"window":/\n&/g' | grep -v '^{"window":"\(minute\|hour\)"'
}

# Open calls of every kind of path, half of them on their way, and some that are closed. Prints their operations.
reserve() { # ID TENANT TEAM KEY CAPABILITY MODEL ECONOMY
    printf '{"op":"reserve","id":"%s","tenant":"%s","team":"%s"%s,"capability":"%s","model":"%s","input_tokens":1000,' \
        "$1" "$2" "$3" "${4:+,\"key\":\"$4\"}" "$5" "$6"
    printf '"max_output_tokens":%d%s,"ttl_ms":3600000}\n' "$((100 + ${1//[!0-9]/}))" "${7:+,\"economy_model\":\"$7\"}"
}
some_calls() {
    local i
    for i in $(seq 1 20); do
        reserve "f$i" bank fraud live classify ChatGPT
        reserve "d$i" bank desk '' chat large mini
        reserve "s$i" shop search '' rewrite mini ''
        reserve "l$i" lab bulk '' label open ''
        [ $((i % 2)) -eq 0 ] || printf '{"op":"dispatch","id":"%s"}\n' "f$i" "d$i" "l$i"
        if [ $((i % 5)) -eq 0 ]; then
            printf '{"op":"settle","id":"s%d","usage":{"input_tokens":1000,"output_tokens":%d},"outcome":"success","ref":"x%d"}\n' $i $i $i
            printf '{"op":"extend","id":"l%d","max_output_tokens":500}\n' $i
        fi
    done
}

case_rebuilt() {
    local day
    head -n 3001 "$traces/azure-llm-2023-conv.csv" >"$dir/morning.csv"
    { head -n 1 "$traces/azure-llm-2023-conv.csv"; sed -n '3002,5000p' "$traces/azure-llm-2023-conv.csv"; } >"$dir/noon.csv"
    for way in recover daemon; do
        make_store
        start_daemon
        day=$(date -u +%F)
        some_calls >"$dir/calls.json"
        "$holdfast" run --segment "$name" <"$dir/calls.json" >"$dir/calls.out"
        ! grep -v '"ok":true' "$dir/calls.out" || die "some calls were refused"
        replay "$dir/morning.csv" --segment "$name" --policy "$policy" --speed max --kill-every 0.01 || die "replay ended with $?"
        world >"$dir/before.out"

        lose_segment
        [ "$(run '{"op":"meters"}' 2>/dev/null | wc -c)" -eq 0 ] || die "a lost segment still answers"
        if [ $way = recover ]; then
            "$holdfast" recover --check --segment "$name" --policy "$policy" --store "$url" >"$dir/check.out"
            [ ! -e "/dev/shm/holdfast.$name" ] || die "recover --check made a segment"
            "$holdfast" recover --segment "$name" --policy "$policy" --store "$url" --slots 16384 >"$dir/recover.out"
            cat "$dir/recover.out"
            grep -q '^coverage gap.* to ' "$dir/recover.out" || die "recover does not tell of a coverage gap"
            same "$(grep '^open holds' "$dir/check.out")" "$(grep '^open holds' "$dir/recover.out")" "check and recover"
        fi
        start_daemon
        world >"$dir/after.out"
        if [ "$day" = "$(date -u +%F)" ]; then
            diff "$dir/before.out" "$dir/after.out" >"$dir/world.out" || die "before and after the loss are not the same"
        fi
        settle_all
        # the segment goes on as if nothing had been
        replay "$dir/noon.csv" --segment "$name" --policy "$policy" --speed max || die "replay ended with $?"
        same "$(field mismatch 2)" 0 mismatch
        kill -TERM "$daemon"
        wait "$daemon" || die "the daemon left with $?"
        daemon=
        rm "/dev/shm/holdfast.$name"
    done
}

# Every call that was open before the loss, by its id alone; the others are as closed as they were.
settle_all() {
    local id
    "$holdfast" run --segment "$name" <"$dir/calls.json" >"$dir/again.out"
    # a reserve again is the same answer, replayed; a settle too
    diff <(grep '"op":"reserve"' "$dir/calls.out" | sed 's/"replayed":false.*//') \
        <(grep '"op":"reserve"' "$dir/again.out" | sed 's/"replayed":true.*//') >"$dir/replayed.out" ||
        die "a reservation is not known as it was"
    same "$(grep '"op":"settle"' "$dir/again.out" | grep -c '"ok":true.*"replayed":true')" 4 "settles known again"
    grep -o '"op":"reserve","id":"[^"]*"' "$dir/calls.json" | cut -d'"' -f8 | grep -v '^s\(5\|10\|15\|20\)$' |
        sed 's/.*/{"op":"settle","id":"&","usage":{"input_tokens":1000,"output_tokens":7},"outcome":"success"}/' >"$dir/settle.json"
    "$holdfast" run --segment "$name" <"$dir/settle.json" >"$dir/settle.out"
    same "$(grep -c '"ok":true.*"late":false,"replayed":false' "$dir/settle.out")" 76 "open calls settled after the loss"
    for id in f1 d2 s5 l20; do
        run "{\"op\":\"receipts\",\"id\":\"$id\"}" | grep -o '"kind":"[a-z]*"' | sort | uniq -d | grep . &&
            die "two receipts of one kind for $id"
    done
    return 0
}

# start_hour: the hour of traffic in 6 seconds, in the background as $hour.
start_hour() {
    start_ms=$(date +%s%3N)
    "$holdfast" replay "$traces/azure-llm-2023-code.csv" --segment "$name" --policy "$policy" --store "$url" --speed 600 \
        --ttl-ms 60000 >"$dir/replay.out" 2>"$dir/replay.log" &
    hour=$!
    sleep 2
}

# wait_hour: its exit status in $status.
wait_hour() {
    status=0
    wait "$hour" || status=$?
    cat "$dir/replay.out"
    same "$(field requests 2)" 8819 requests
    same "$(grep -c 'coverage gap' "$dir/daemon.log")" 1 "coverage gaps told of"
}

# Workers are inside when the file goes. The daemon closes the segment, commits what is in it and leaves; workers wait for the
# next one, which makes the segment again. Nothing at all is missing.
case_removed() {
    make_store
    start_daemon
    start_hour
    rm "/dev/shm/holdfast.$name"
    status=0
    wait "$daemon" || status=$?
    same $status 1 "exit status of a daemon whose segment was removed"
    start_daemon
    wait_hour
    same $status 0 "exit status of replay"
    same "$(field mismatch 2)" 0 mismatch
}

# The daemon is killed besides: workers go on until they find that the file is gone, and what they did since the last commit is
# lost. That much and no more: it lies in the coverage gap, nothing is there twice, and every bucket is as the store says.
case_under_way() {
    local missing gap_from gap_until most
    make_store
    start_daemon
    start_hour
    lose_segment
    start_daemon
    wait_hour
    [ $status -le 1 ] || die "replay ended with $status"
    missing=$(awk '/written down by a worker, not in the store/ { print $NF }' "$dir/replay.out")
    same "$(field mismatch 2)" "$missing" "mismatch and what had not been committed"
    read -r gap_from gap_until < <(sed -n 's/.* happened from \([0-9]*\) to \([0-9]*\) .*/\1 \2/p' "$dir/daemon.log")
    # rows whose time was in the gap, give or take half a second of lateness; each has a reservation and a closing
    most=$(awk -F'[ :,]' -v gap_from="$gap_from" -v gap_until="$gap_until" -v start="$start_ms" 'NR > 1 {
            s = $2 * 3600 + $3 * 60 + $4
            if (NR == 2) first = s
            at = start + (s - first) * 1000 / 600
            cnt += at > gap_from - 500 && at < gap_until + 500
        } END { print 2 * cnt }' "$traces/azure-llm-2023-code.csv")
    [ "$missing" -le "$most" ] || die "$missing missing, and the coverage gap explains at most $most"
    [ "$most" -lt $((2 * 8819)) ] || die "the coverage gap is everything"
}

"case_${case//-/_}"
echo "ok: $case $store $trace"
