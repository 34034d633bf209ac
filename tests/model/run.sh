#!/bin/bash
# The model of the protocol, searched with spin: see README.md.
#
#   run.sh CONFIG...            runs configurations of configs.txt; `ci` and `long` stand for all of a kind
#   run.sh --mutants [NAME...]  takes a rule out of the model at a time and shows that the search finds it; `ci`, `long`
#   run.sh --list               names them
#
# A configuration fails when an assertion does, when some state can be left by nobody though work is undone, or when a
# place that it is said to reach (`@tag` in the model) is not reached. A mutant fails when nothing was found.
#
#   HOLDFAST_LONG=1        also runs what is marked long (else: skipped, status 77)
#   HOLDFAST_MODEL_MEMORY  MiB of a search (default 2600)
#   HOLDFAST_MODEL_DIR     where to work and leave the trail of an error (default: a temporary folder, removed at the end)
#   HOLDFAST_MODEL_SECONDS end of one search (default 3000): one that is to be exhaustive has failed then; one by
#                          bitstate was a sample, and says of how many states
set -euo pipefail

here=$(cd "$(dirname "$0")" && pwd)
memory=${HOLDFAST_MODEL_MEMORY:-2600}
seconds=${HOLDFAST_MODEL_SECONDS:-3000}
cc=${CC:-cc}
long=${HOLDFAST_LONG:-0}
states=0 searches=0 failures=0 found=0

skip() { echo "skipped: $*"; exit 77; }
usage() { sed -n '2,17s/^# \{0,1\}//p' "$0" >&2; exit 2; }

rows() { # FILE: its lines without comments
    sed -e 's/#.*//' -e '/^[[:space:]]*$/d' "$here/$1"
}

# One search. build NAME MODE DEFINES... -> $dir/out, $dir/pan
search() {
    local name=$1 mode=$2 flags status=0
    shift 2
    dir=$work/$name
    mkdir -p "$dir"
    rm -f "$dir"/*.trail
    case $mode in
    exhaustive) flags="-DCOLLAPSE" ;;
    bitstate*) flags="-DBITSTATE" ;;
    *) echo "FAILED: $name: no such mode: $mode" >&2; exit 2 ;;
    esac
    # Every process has a way out that a kill opens (unless), so partial orders are not reduced.
    (cd "$dir" && spin "$@" -a "$here/holdfast.pml" &&
        "$cc" "${optimise:--O1}" -w -DSAFETY -DNOREDUCE $flags -DMEMLIM="$memory" -o pan pan.c) >"$dir/build" 2>&1 ||
        { cat "$dir/build"; echo "FAILED: $name: the model does not build" >&2; exit 1; }
    local args=(-m1000000)
    case $mode in bitstate=*) args+=(-w"${mode#bitstate=}" -k2) ;; esac
    (cd "$dir" && timeout "$seconds" ./pan "${args[@]}") >"$dir/out" 2>&1 || status=$?
    [ $status -eq 124 ] && echo "HOLDFAST_MODEL_SECONDS=$seconds are over" >>"$dir/out"
    searches=$((searches + 1))
    local stored
    stored=$(sed -n 's/^ *\([0-9]*\) states, stored.*/\1/p' "$dir/out")
    states=$((states + ${stored:-0}))
    return 0
}

# Whether the search was whole and found nothing.
clean() {
    grep -q 'errors: 0' "$dir/out" && ! grep -Eq 'Search not completed|out of memory|max search depth|are over' "$dir/out"
}

# A tag is reached when some process that has its line does not call it unreached.
unreached() { # TAG
    local hit file line having missing
    hit=$(cd "$here" && grep -n "@$1\b" ./*.pml | head -n 1) || { echo "no line has the tag @$1"; return; }
    file=${hit%%:*} file=${file#./}
    line=${hit#*:} line=${line%%:*}
    case $file in worker.pml | index.pml | daemon.pml) having=1 ;; *) having=2 ;; esac
    missing=$(awk -v at="$file:$line," '/^unreached in/ { seen = 0 } index($0, at) && !seen { seen = 1; n++ } END { print n + 0 }' "$dir/out")
    [ "$missing" -lt $having ] || echo "@$1 ($file:$line) was not reached"
}

told() { # NAME MODE
    local line
    line=$(awk '/states, stored/ { s = $1 } /hash factor/ { h = $0; sub(/.*hash factor: /, "", h); sub(/ .*/, "", h) }
        /depth reached/ { d = $0; sub(/.*depth reached /, "", d); sub(/,.*/, "", d) } /elapsed time/ { t = $4 }
        /total actual memory/ { m = $1 }
        END { printf "%s states, depth %s, %s MiB, %s s", s, d, m, t; if (h != "") printf ", hash factor %s", h }' "$dir/out")
    echo "$1 ($2): $line"
}

run_config() { # NAME
    local row name mode kind tags defines missing="" tag
    row=$(rows configs.txt | awk -F'|' -v n="$1" '{ name = $1; gsub(/[ \t]/, "", name) } name == n')
    [ -n "$row" ] || { echo "no configuration is called $1; --list names them" >&2; exit 2; }
    IFS='|' read -r name kind mode tags defines <<<"$row"
    name=${name// /} kind=${kind// /} mode=${mode// /}
    if [ "$kind" = long ] && [ "$long" != 1 ]; then
        skip "$name takes long: HOLDFAST_LONG=1 runs it"
    fi
    # shellcheck disable=SC2086 # lists
    search "$name" "$mode" $defines
    told "$name" "$mode"
    if [[ $mode == bitstate* ]] && grep -q 'are over' "$dir/out" && ! grep -q 'wrote .*trail' "$dir/out"; then
        echo "$name: a sample; stopped by HOLDFAST_MODEL_SECONDS at: $(grep '^Depth=' "$dir/out" | tail -n 1)"
        return
    fi
    if ! clean; then
        grep -E '^pan|out of memory|max search depth|are over' "$dir/out" | head -n 5
        failed "$name" "$defines"
        return
    fi
    for tag in $tags; do
        missing+=$(unreached "$tag")
    done
    if [ -n "$missing" ]; then
        echo "$missing"
        failed "$name" "$defines"
    fi
}

failed() { # NAME DEFINES
    failures=$((failures + 1))
    echo "FAILED: $1. The trail: HOLDFAST_MODEL_DIR=DIR HOLDFAST_LONG=1 $0 $1; cd DIR/$1; spin $2 -t -p $here/holdfast.pml"
}

run_mutant() { # NAME
    local row name kind mode tags defines
    row=$(rows mutants.txt | awk -F'|' -v n="$1" '{ name = $1; gsub(/[ \t]/, "", name) } name == n')
    [ -n "$row" ] || { echo "no mutant is called $1; --list names them" >&2; exit 2; }
    IFS='|' read -r name kind mode defines tags <<<"$row"
    name=${name// /} kind=${kind// /} mode=${mode// /}
    if [ "$kind" = long ] && [ "$long" != 1 ]; then
        echo "mutant $name: takes long, left out"
        return
    fi
    # shellcheck disable=SC2086 # a list
    search "mutant-$name" "$mode" -DMUTANT_"$name" $defines
    if grep -q '^pan.*wrote .*trail' "$dir/out"; then
        found=$((found + 1))
        echo "mutant $name: found, $(sed -n 's/^pan:[0-9]*: \(.*\)/\1/p' "$dir/out" | head -n 1)"
    else
        told "mutant $name" "$mode"
        failures=$((failures + 1))
        echo "FAILED: the search does not notice that the rule $name is gone"
    fi
}

names() { # FILE KIND
    rows "$1" | awk -F'|' -v k="$2" '{ gsub(/[ \t]/, "", $1); gsub(/[ \t]/, "", $2) } $2 == k { print $1 }'
}

[ $# -gt 0 ] || usage
if [ "$1" = --list ]; then
    echo "configurations: $(names configs.txt ci | xargs); long: $(names configs.txt long | xargs)"
    echo "mutants: $(names mutants.txt ci | xargs); long: $(names mutants.txt long | xargs)"
    exit 0
fi
command -v spin >/dev/null || skip "spin is not installed"
command -v "$cc" >/dev/null || skip "no C compiler"

if [ -n "${HOLDFAST_MODEL_DIR:-}" ]; then
    work=$HOLDFAST_MODEL_DIR
    mkdir -p "$work"
else
    work=$(mktemp -d "${TMPDIR:-/tmp}/hf-model.XXXXXX")
    trap 'rm -rf "$work"' EXIT
fi

if [ "$1" = --mutants ]; then
    shift
    optimise=-O0 # small searches: building takes longer than they do
    [ $# -gt 0 ] || set -- ci long
    for name in "$@"; do
        case $name in
        ci | long) for each in $(names mutants.txt "$name"); do run_mutant "$each"; done ;;
        *) run_mutant "$name" ;;
        esac
    done
    echo "totals: $searches mutants, $found found, $states states"
else
    for name in "$@"; do
        case $name in
        ci | long) for each in $(names configs.txt "$name"); do run_config "$each"; done ;;
        -*) usage ;;
        *) run_config "$name" ;;
        esac
    done
    echo "totals: $searches searches, $states states, $failures failures"
fi
[ $failures -eq 0 ]
