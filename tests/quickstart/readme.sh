#!/bin/bash
# The README: its policy is right, its commands work, what it points to is there.
#
#   readme.sh SOURCE BUILD
set -euo pipefail
source=$1 build=$2
dir=$(mktemp -d "${TMPDIR:-/tmp}/hf-readme.XXXXXX")
trap 'rm -rf "$dir"' EXIT
die() { echo "FAILED: $*" >&2; exit 1; }
cd "$source"

sed -n '/^```yaml$/,/^```$/p' README.md | grep -v '^```' >"$dir/policy.yaml"
"$build/tools/holdfast" check --strict "$dir/policy.yaml" | tee "$dir/check"
! grep -q warning "$dir/check" || die "the README's policy has a warning"

# links, and files and folders named in code marks or commands
{
    grep -o '](\([^)]*\))' README.md | tr -d '()]'
    grep -oE '(core|shm|persist|tools|tests|bench)/[A-Za-z0-9_./-]+' README.md
} | grep -v '^build/' | sort -u >"$dir/named"
[ "$(wc -l <"$dir/named")" -gt 15 ] || die "it names nothing"
while read -r path; do
    [ -e "$path" ] || [ -e "$build/$path" ] || die "README.md names $path, which is not there"
done <"$dir/named"

sed -n '/^<!-- tested -->$/,/^```$/p' README.md | grep -v '^```\|^<!--' | sed "s|build/quickstart|$build|g" |
    sed "s|\$PWD/$build|$build|; s|^kill %1|kill -TERM \$!; wait \$!|" >"$dir/commands"
[ "$(wc -l <"$dir/commands")" -ge 8 ] || die "it has no commands"
mkdir "$dir/tmp"
TMPDIR=$dir/tmp bash -euo pipefail "$dir/commands" 2>&1 | tee "$dir/out" || die "the README's commands do not work"
grep -q '^483 micros spent$' "$dir/out" || die "the example does not say what was spent"
grep -q '"kind":"settlement"' "$dir/out" || die "there is no receipt"
