#!/bin/sh
# Runs tests of the engine with native code that watches itself: reads and writes outside its memory
# and what C leaves undefined end a test run with the place. The compiler is gcc, or what CC names.
# A library for sanitizers is built into a cache of its own, and python gets their runtime first.
set -eu
cd "$(dirname "$0")/.."
compiler=${CC:-gcc}
for part in asan ubsan; do
    file=$($compiler -print-file-name=lib$part.so)
    [ -e "$file" ] || {
        echo "test-sanitized: $compiler has no lib$part. Install gcc's sanitizers, or name a gcc in CC." >&2
        exit 1
    }
    runtime="${runtime:+$runtime }$file"
done
cache=$(mktemp -d)
trap 'rm -rf "$cache"' EXIT
# Sums in another order than the compiler's own would be other bits, so optimisation stays as it is.
CC="$compiler -fsanitize=address,undefined -fno-sanitize-recover=undefined -fno-omit-frame-pointer -g"
# Python and torch keep memory until they end: leaks are not looked for.
export CC XDG_CACHE_HOME="$cache" ASAN_OPTIONS=detect_leaks=0 UBSAN_OPTIONS=print_stacktrace=1
# Built before the tests: the process that builds a library knows it by a name that is gone, and a
# sanitizer could not find the lines.
build='import torch; from graphfold.batching.native.library import load; load(torch.float32); load(torch.float64)'
LD_PRELOAD=$runtime .venv/bin/python -c "$build"
# What a sanitizer prints goes to the terminal, not to a file of pytest's, as the process ends then.
LD_PRELOAD=$runtime .venv/bin/python -m pytest --capture=sys "$@"
