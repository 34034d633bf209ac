#!/bin/sh
# A processor that cannot swap 128 bits is refused by a sentence, not by SIGILL; one that can is not refused.
#
#   processor.sh accepted|refused COMMAND...
expected=$1
shift
command -v "$1" >/dev/null || { echo "skipped: there is no $1 here (Debian: qemu-user)"; exit 77; }
said=$("$@")
status=$?
printf '%s\n' "$said" "exit status $status"
case $expected in
accepted) [ $status -eq 0 ] ;;
refused)
    [ $status -eq 1 ] && for call in attach create anonymous; do
        printf '%s\n' "$said" | grep -q "^$call: this processor cannot swap 128 bits at once (.*; run holdfast on a machine that can" || exit 1
    done
    ;;
*) exit 2 ;;
esac
