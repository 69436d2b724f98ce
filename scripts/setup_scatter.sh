#!/bin/sh
# Builds torch-scatter into .venv, for the backend 'scatter', which nothing needs. Safe to run again
# at any time. The exit status is 1 where it cannot be built.
set -eu
cd "$(dirname "$0")/.."
venv=.venv
log=$venv/torch-scatter.log

# Its four small libraries are compiled two at a time, against the torch in .venv.
build() {
    printf '[build_ext]\nparallel = 2\n' >"$venv/build.cfg"
    DIST_EXTRA_CONFIG="$PWD/$venv/build.cfg" "$venv/bin/python" -m pip install -qq --no-input \
        --disable-pip-version-check --constraint constraints.txt --no-build-isolation "$@" torch-scatter
}

works() {
    "$venv/bin/python" -c 'import torch_scatter'
}

# pip's cache may hold a wheel that was built against another torch: it installs, and fails later.
make_work() {
    works && return
    build || return
    works || { build --no-cache-dir --force-reinstall --no-deps && works; }
}

if ! "$venv/bin/python" -c 'import torch' 2>/dev/null; then
    echo "setup-scatter: there is no torch in $venv to build it against. Run make setup first." >&2
    exit 1
fi
echo "torch-scatter (compiled once, a few minutes)"
if ! make_work >"$log" 2>&1; then
    "$venv/bin/python" -m pip uninstall -qq --yes torch-scatter >>"$log" 2>&1 || true
    echo "setup-scatter: it cannot be built here ($log says why): graphfold uses torch's own kernels," \
        "and all but the backend 'scatter' works without it" >&2
    exit 1
fi
echo "done: the backend 'scatter' can be chosen"
