#!/bin/bash
# Run the examples, each twice, against a segment in a folder of its own with a daemon on SQLite.
#
#   tests/examples/run.sh HOLDFAST HOLDFASTD EXAMPLE...
set -u
command=$1
daemon=$2
shift 2
cd "$(dirname "$0")/../../core/examples" || exit 1
dir=$(mktemp -d /dev/shm/hf-examples.XXXXXX)
pid=
stop() {
    [ -z "$pid" ] || { kill "$pid" && wait "$pid"; } 2>/dev/null
    pid=
}
trap 'stop; rm -rf "$dir"' EXIT

"$command" store init "sqlite:$dir/store.db" >"$dir/log" || { cat "$dir/log" >&2; exit 1; }
"$daemon" --segment "$dir/demo" --policy policy.yaml --store "sqlite:$dir/store.db" --slots 4096 2>"$dir/log" &
pid=$!
for _ in $(seq 300); do
    ! grep -q ready "$dir/log" || break
    kill -0 "$pid" 2>/dev/null || break
    sleep 0.1
done
grep -q ready "$dir/log" || { echo "examples: the daemon did not come up:" >&2; cat "$dir/log" >&2; exit 1; }

failed=0
for example in "$@"; do
    for time in first second; do
        echo "== $(basename "$example"), $time time"
        if ! "$example" "$dir/demo"; then
            echo "examples: $(basename "$example") failed" >&2
            failed=1
        fi
    done
done
kill "$pid" && wait "$pid"
status=$?
pid=
[ $status -eq 0 ] || { echo "examples: the daemon ended with $status:" >&2; cat "$dir/log" >&2; failed=1; }
exit $failed
