#!/bin/sh
# Without the flag that allows the 128-bit swap the compiler refuses shm/ with a sentence that names the flag; with it, not.
#
#   compiler.sh ROOT
cd "$1" || exit 2
status=77
# try COMPILER FLAG SENTENCE
try() {
    command -v "$1" >/dev/null || { echo "$1: skipped, it is not here"; return; }
    [ $status -ne 77 ] || status=0
    "$1" -std=gnu11 -D_GNU_SOURCE= -I. "$2" -fsyntax-only shm/commit.c || { echo "$1 $2: refused"; status=1; }
    said=$("$1" -std=gnu11 -D_GNU_SOURCE= -I. "$4" -fsyntax-only shm/commit.c 2>&1) && { echo "$1 $4: accepted"; status=1; }
    printf '%s\n' "$said" | grep -q "error: .*$3" || { echo "$1 $4: no such sentence: $3"; status=1; }
}
try aarch64-linux-gnu-gcc -march=armv8.1-a 'holdfast needs LSE (casp) on arm64: compile with -march=armv8.1-a' -march=armv8-a
if [ "$(uname -m)" = x86_64 ]; then
    try gcc -mcx16 'holdfast needs cmpxchg16b: compile with -mcx16' -mno-cx16
    try clang -mcx16 'holdfast needs cmpxchg16b: compile with -mcx16' -mno-cx16
fi
exit $status
