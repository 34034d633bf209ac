#!/bin/bash
# The checks of this folder find what they are for: each bad line below, alone in a tree, must be refused, and each good
# one accepted.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
dir=$(mktemp -d "${TMPDIR:-/tmp}/hf-lint.XXXXXX")
trap 'rm -rf "$dir"' EXIT
wrong=0 cnt=0

# try CHECK bad|good FILE TEXT [README-TEXT]
try() {
    local check=$1 expect=$2 file=$3 text=$4 readme=${5:-} found=good
    rm -rf "$dir/tree"
    mkdir -p "$dir/tree/shm" "$dir/tree/$(dirname "$file")"
    printf '%b\n' "$text" >"$dir/tree/$file"
    [ -z "$readme" ] || printf '%b\n' "$readme" >"$dir/tree/shm/README.md"
    "$here/$check.pl" "$dir/tree" >"$dir/out" || found=bad
    cnt=$((cnt + 1))
    [ $found = "$expect" ] && return
    echo "selftest: $check says $found, not $expect, of $file: $text"
    cat "$dir/out"
    wrong=$((wrong + 1))
}

try layers bad shm/a.c '#include "core/name.h"'
try layers bad shm/a.c '#include "holdfast.h"'
try layers bad core/a.h '# include "persist/store.h"'
try layers bad persist/a.c '#include "tools/common/trace.h"'
try layers bad tools/a.c '#include "tests/support/x.h"'
try layers bad core/a.c '#include "name.h"'
try layers bad tests/unit/a_test.c '#include "../../core/name.h"'
try layers bad core/include/holdfast.h '#include <stdbool.h>'
try layers bad core/a.c '#include <stdatomic.h>'
try layers bad tools/a.c 'volatile int stop;'
try layers bad core/a.c 'x = __atomic_load_n(&y, 0);'
try layers bad core/a.c '/* a */ atomic_thread_fence(memory_order_acquire); /* b */'
try layers bad core/a.c '#include <sqlite3.h>'
try layers bad persist/drain.c '#include <libpq-fe.h>'
try layers bad persist/drain.c '#include "persist/postgres_impl.h"'
try layers bad tools/a.c '#include <yaml.h>'
try layers bad tools/a.c '#include <openssl/evp.h>'
try layers bad shm/a.c '#include <urcu/rculfhash.h>'
try layers bad core/a.c '#include <jemalloc/jemalloc.h>'
try layers bad core/a.c '    abort();'
try layers bad shm/a.c '    printf("x");'
try layers good core/a.c '/* not __atomic_load_n,\n * nor volatile */\n#include "shm/atomic.h"\n#include <stdint.h>'
try layers good core/a.c 'const char *url = "http://x"; // abort();'
try layers good tools/a.c 'static volatile sig_atomic_t stop;'
try layers good persist/sqlite_open.c '#include <sqlite3.h>'
try layers good persist/postgres.c '#include <libpq-fe.h>'
try layers good core/policy_read.c '#include <yaml.h>'
try layers good shm/atomic.h 'return __atomic_load_n(word, __ATOMIC_RELAXED);'
try layers good core/a.c '    snprintf(text, sizeof(text), "x");'

row='| E1 | hf_put | hf_get | the record | else torn |'
both='void hf_put(void)\n{\n    hf_store_rel_u64(&a, 1); /* E1 */\n}\nint hf_get(void)\n{\n    return hf_load_acq_u64(&a); /* E1 */\n}'
try atomics bad shm/a.c 'void f(void)\n{\n    hf_store_rel_u64(&a, 1);\n}'
try atomics bad shm/a.c 'void f(void)\n{\n    /* stores it */\n    hf_store_rlx_u64(&a, 1);\n}'
try atomics bad shm/a.c 'void f(void)\n{\n    /* relaxed: why */\n    b = 1;\n    hf_store_rlx_u64(&a, 1);\n}'
try atomics bad shm/a.c '/* relaxed everywhere below: why */\nvoid f(void)\n{\n    hf_fence_acq();\n}'
try atomics bad shm/a.c "$both" '| E2 | hf_put | hf_get | x | y |'
try atomics bad shm/a.c "$both" "$row\n| E2 | hf_put | hf_get | x | y |"
try atomics bad shm/a.c "$both" '| E1 | hf_put | hf_gone | x | y |'
try atomics bad shm/a.c "$both" '| E1 | hf_put | | x | y |'
try atomics bad shm/a.c "$both" "$row\n$row"
try atomics good shm/a.c "$both" "$row"
try atomics good shm/a.c 'void f(void)\n{\n    /* relaxed: why,\n     * and more */\n    hf_store_rlx_u64(&a, 1);\n    hf_store_rlx_u64(&b,\n                     1);\n}'
try atomics good shm/a.c 'void f(void)\n{\n    while (hf_load_rlx_u64(&a) != 1) { /* relaxed: why */\n    }\n}'
try atomics good shm/a.c '/* LIN of f. */\nvoid f(void)\n{\n    hf_cas_acqrel_u128(&a, b, c);\n}'
try atomics good shm/a.c '/* relaxed everywhere below: why */\nvoid f(void)\n{\n    b = 1;\n    hf_add_rlx_u64(&a, 1);\n}'

echo "selftest: $cnt lines, $wrong wrong"
[ $wrong -eq 0 ]
