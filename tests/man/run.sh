#!/bin/bash
# Manual pages against what they speak of:
#   - each function of the public header has a page that names it;
#   - a page about a function shows the parameters of its declaration, and only constants that the header has;
#   - each reference to another page of ours leads somewhere;
#   - each program has its page;
#   - the formatter has nothing to say (groff; mandoc, too, where it is installed).
set -euo pipefail
cd "$(dirname "$0")/../.."
header=core/include/holdfast.h
command -v groff >/dev/null || { echo "man: groff is not installed" >&2; exit 77; }

bad=0
finding() {
    echo "man: $*" >&2
    bad=1
}

# name<TAB>parameter names, one function a line, from the header without its comments.
declared=$(perl -0777 -ne 's{/\*.*?\*/}{}gs; s{\b__attribute__\s*\(\(.*?\)\)}{}g;
    while (/\b(holdfast_[a-z0-9_]+)\s*\(((?:[^(){};]|\((?:[^()])*\))*)\)\s*(?:HOLDFAST_MUST_USE\s*)?[;{]/g) {
        my ($name, $list) = ($1, $2);
        $list =~ s/\s+/ /g;
        $list =~ s/^ | $//g;
        print "$name\t$list\n";
    }' "$header")
[ "$(wc -l <<<"$declared")" -ge 20 ] || finding "only $(wc -l <<<"$declared") functions found in $header: is this test blind?"

while IFS=$'\t' read -r name list; do
    page=core/man/$name.3
    if [ ! -f "$page" ]; then
        finding "$name of $header has no page $page"
        continue
    fi
    link=$(sed -n '1s/^\.so man3\///p' "$page")
    [ -z "$link" ] || page=core/man/$link
    grep -qE "^\.Nm $name( ,)?$" "$page" || finding "$page does not name $name"
    # Parameters as written there: .Fa "TYPE NAME" between .Fo NAME and .Fc.
    shown=$(sed -n "/^\.Fo $name\$/,/^\.Fc/s/^\.Fa \"\(.*\)\"/\1/p" "$page" | paste -sd'|' | sed 's/|/, /g')
    [ "$shown" = "$list" ] || finding "$page shows $name($shown), the header has ($list)"
done <<<"$declared"

for page in core/man/*.[137] tools/man/*.[18]; do
    [ -f "$page" ] || continue
    ours=$(sed -n '1s/^\.so \(man.\/.*\)/\1/p' "$page")
    if [ -n "$ours" ]; then
        [ -f "core/man/${ours#*/}" ] || finding "$page leads to $ours, which is not there"
        continue
    fi
    for word in $(grep -v '^\.Dt ' "$page" | grep -oE 'HOLDFAST_[A-Z_0-9]+' | sort -u); do
        grep -qw "$word" "$header" || finding "$page speaks of $word, which $header does not have"
    done
    while read -r name section; do
        case $name in
        holdfast*) [ -f "core/man/$name.$section" ] || [ -f "tools/man/$name.$section" ] ||
            finding "$page refers to $name($section), which is not there" ;;
        esac
    done < <(sed -n 's/^\.Xr \([^ ]*\) \([0-9]\).*/\1 \2/p' "$page")
    said=$(groff -mdoc -ww -z -Tutf8 "$page" 2>&1)
    [ -z "$said" ] || finding "$said"
    ! command -v mandoc >/dev/null || said=$(mandoc -T lint -W warning "$page") || finding "$said"
done
for page in tools/man/holdfast.1 tools/man/holdfastd.8 tools/man/holdfast-recover.8; do
    [ -f "$page" ] || finding "no $page"
done
exit $bad
