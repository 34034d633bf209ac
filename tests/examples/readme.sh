#!/bin/bash
# The README shows core/examples/quick.c between its two marks, word for word.
set -u
cd "$(dirname "$0")/../.." || exit 1
[ -f README.md ] || exit 77
quoted=$(sed -n '/README: begin/,/README: end/p' core/examples/quick.c | sed '1d;$d')
[ -n "$quoted" ] || { echo "examples: the marks are missing in core/examples/quick.c" >&2; exit 1; }
[ "$(grep -cv '^$' <<<"$quoted")" -le 24 ] || { echo "examples: quick.c is no short example any more" >&2; exit 1; }
readme=$(<README.md)
[[ $readme == *"$quoted"* ]] || { echo "examples: README.md does not show core/examples/quick.c as it is" >&2; exit 1; }
