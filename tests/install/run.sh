#!/bin/bash
# Install the build into a new folder and use it as a stranger would: a C and a C++ program through pkg-config and
# through find_package, against the shared and the static library. Then look at what the shared library exports and
# needs.
#
#   tests/install/run.sh BUILD-FOLDER VERSION
set -euo pipefail
build=$1
version=$2
here=$(cd "$(dirname "$0")" && pwd)
cc=${CC:-cc}
cxx=${CXX:-c++}

dir=$(mktemp -d "${TMPDIR:-/tmp}/hf-install.XXXXXX")
trap 'rm -rf "$dir"' EXIT
fail() {
    echo "install: $*" >&2
    exit 1
}

# A staged tree, as a packager makes it: DESTDIR in front of the prefix that the build was configured with.
DESTDIR=$dir/stage cmake --install "$build" >"$dir/install.log"
prefix=$(sed -n 's/^CMAKE_INSTALL_PREFIX:PATH=//p' "$build/CMakeCache.txt")
mv "$dir/stage$prefix" "$dir/moved" # and moved, as nobody promised it would stay there
prefix=$dir/moved
find "$prefix" -type f -printf '%P\n' | LC_ALL=C sort

# ---- the shared library ----
so=$(find "$prefix" -name 'libholdfast.so')
[ -n "$so" ] || fail "no libholdfast.so was installed"
[ "$(readelf -d "$so" | sed -n 's/.*(SONAME).*\[\(.*\)\]/\1/p')" = libholdfast.so.0 ] || fail "wrong SONAME"
exported=$(nm -D --defined-only --format=posix "$so" | awk '$2 != "A" {print $1}' | sed 's/@.*//')
[ -n "$exported" ] || fail "libholdfast.so exports nothing"
stray=$(grep -v '^holdfast_' <<<"$exported" || true)
[ -z "$stray" ] || fail "libholdfast.so exports more than holdfast_*:" $stray
declared=$(perl -0777 -ne 's{/\*.*?\*/}{}gs; print "$1\n" while /\b(holdfast_[a-z0-9_]+)\s*\([^;{]*\)[^;{]*;/g' \
    "$prefix/include/holdfast.h" | LC_ALL=C sort -u)
differ=$(diff <(LC_ALL=C sort -u <<<"$exported") <(echo "$declared") || true)
[ -z "$differ" ] || fail "exported (<) and declared in holdfast.h (>) differ:"$'\n'"$differ"
ldd "$so" >"$dir/needs"
if grep -E 'libpq|jemalloc|sqlite|libyaml|libjansson|libcrypto|microhttpd' "$dir/needs"; then
    fail "libholdfast.so needs a library that a gateway must not get from it"
fi
libs=$(dirname "$so")

# ---- pkg-config ----
export PKG_CONFIG_PATH=$libs/pkgconfig
[ "$(pkg-config --modversion holdfast)" = "$version" ] || fail "holdfast.pc has the wrong version"
read -ra flags <<<"$(pkg-config --cflags --libs holdfast)"
read -ra static_flags <<<"$(pkg-config --cflags --libs --static holdfast)"
warn=(-Wall -Wextra -Wpedantic -Werror)
for language in c c++; do
    case $language in
    c) compile=("$cc" -std=c99) ;;
    c++) compile=("$cxx" -std=c++11) ;;
    esac
    "${compile[@]}" "${warn[@]}" -x $language "$here/consumer.c" -x none "${flags[@]}" -o "$dir/shared-$language"
    LD_LIBRARY_PATH=$libs "$dir/shared-$language" "$version"
    "${compile[@]}" "${warn[@]}" -x $language "$here/consumer.c" -x none \
        "${static_flags[@]/-lholdfast/-l:libholdfast.a}" -o "$dir/static-$language"
    "$dir/static-$language" "$version"
    ! ldd "$dir/static-$language" | grep -q libholdfast || fail "the static $language program needs libholdfast.so"
done

# ---- find_package ----
cp "$here/consumer.c" "$dir/consumer.c"
cp "$here/consumer.c" "$dir/consumer.cpp"
cat >"$dir/CMakeLists.txt" <<END
cmake_minimum_required(VERSION 3.22)
project(consumer C CXX)
enable_testing()
find_package(holdfast $version REQUIRED)
foreach(library IN ITEMS holdfast holdfast_static)
    foreach(language IN ITEMS c cpp)
        add_executable(\${library}_\${language} consumer.\${language})
        target_link_libraries(\${library}_\${language} PRIVATE holdfast::\${library})
        add_test(NAME \${library}_\${language} COMMAND \${library}_\${language} $version)
    endforeach()
endforeach()
END
CC=$cc CXX=$cxx cmake -G Ninja -S "$dir" -B "$dir/build" -DCMAKE_PREFIX_PATH="$prefix" >"$dir/log"
cmake --build "$dir/build" >>"$dir/log" || { cat "$dir/log"; fail "a program does not build through find_package"; }
(cd "$dir/build" && ctest --no-tests=error --output-on-failure >>"$dir/log") || { cat "$dir/log"; exit 1; }

# ---- the programs ----
for program in "$prefix"/bin/holdfast "$prefix"/sbin/holdfastd; do
    [ ! -e "$program" ] || "$program" --version | grep -q "$version" || fail "$program --version does not say $version"
done
echo "install: ok, $(wc -l <<<"$exported") functions exported"
