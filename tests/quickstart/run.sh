#!/bin/bash
# Runs tools/quickstart, and then every command that it says to try next.
#
#   run.sh SOURCE BUILD
set -euo pipefail
source=$1 build=$2
dir=$(mktemp -d "${TMPDIR:-/tmp}/hf-quickstart.XXXXXX")
trap 'rm -rf "$dir"' EXIT
die() { echo "FAILED: $*" >&2; exit 1; }

cd "$source"
mkdir "$dir/tmp"
TMPDIR=$dir/tmp tools/quickstart --built "$build" >"$dir/out" 2>&1 || { cat "$dir/out"; die "quickstart ended with $?"; }
cat "$dir/out"
[ "$(grep -c '^ *mismatch 0$' "$dir/out")" -eq 2 ] || die "not two accounts with mismatch 0"
grep -q 'killed: workers 1, ' "$dir/out" || die "no worker was killed"
segment=$(sed -n 's/.* the segment \(quickstart-[0-9]*\),.*/\1/p; s/^.*--segment \(quickstart-[0-9]*\) .*/\1/p' "$dir/out" | head -n 1)
[ -n "$segment" ] || die "no name of a segment"
[ -z "$(ls -A "$dir/tmp")" ] || die "it left something in its temporary folder: $(ls -A "$dir/tmp")"
[ -z "$(ls -d /dev/shm/*"$segment"* 2>/dev/null)" ] || die "it left its segment"

sed -n '/^== What to try next/,$ s/^  \$ //p' "$dir/out" >"$dir/next"
[ "$(wc -l <"$dir/next")" -ge 5 ] || die "nothing to try next"
while read -r command; do
    case $command in *tools/test) continue ;; esac # this runs in it
    printf '\n$ %s\n' "$command"
    bash -euo pipefail -c "$command" 2>&1 </dev/null || die "what to try next does not work: $command"
done <"$dir/next"
