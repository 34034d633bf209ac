#!/bin/bash
# Lets a libFuzzer target search for a while, and says in one line how far it came.
#
#   tests/fuzz/run.sh TARGET NAME SECONDS FOLDER-FOR-FINDS CORPUS
#
# HOLDFAST_LONG=1: twenty times as long. HOLDFAST_SEED: another seed than 1. A find is left beside the target, as NAME-crash-... ,
# and the failure says how to run it again.
set -u
target=$1 name=$2 seconds=$3 found=$4 corpus=$5
[ "${HOLDFAST_LONG:-0}" != 1 ] || seconds=$((seconds * 20))
prefix=$(dirname "$target")/$name-
log=$prefix"log"

"$target" -seed="${HOLDFAST_SEED:-1}" -max_total_time="$seconds" -timeout=20 -rss_limit_mb=4096 -print_final_stats=1 \
    -artifact_prefix="$prefix" "$found" "$corpus" >"$log" 2>&1
status=$?
executions=$(sed -n 's/^stat::number_of_executed_units: *//p' "$log" | tail -n 1)
edges=$(grep -o ' cov: [0-9]*' "$log" | tail -n 1 | grep -o '[0-9]*$')
all=$(grep -oE '\([0-9]+ inline 8-bit counters|INFO: Loaded 1 modules +\([0-9]+' "$log" | grep -oE '[0-9]+$|\([0-9]+' | tr -d '(' | head -n 1)
line="totals: fuzz.$name: executions ${executions:-unknown}, edges covered ${edges:-unknown} of ${all:-unknown} in what is linked"
echo "$line" | tee "$prefix"totals
if [ $status -ne 0 ]; then
    tail -n 60 "$log"
    echo "again: $target ${prefix}crash-... (the file is named above)"
    exit 1
fi
