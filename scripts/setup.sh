#!/bin/sh
# Makes .venv: the pinned libraries, graphfold itself (editable) and, where it compiles,
# torch-scatter. Safe to run again at any time. PYTHON names the interpreter (default: python3).
set -eu
cd "$(dirname "$0")/.."
venv=.venv
python=${PYTHON:-python3}
log=$venv/torch-scatter.log

install() {
    "$venv/bin/python" -m pip install -qq --no-input --disable-pip-version-check \
        --constraint constraints.txt "$@"
}

# Its four small libraries are compiled two at a time, against the torch in .venv.
build_scatter() {
    printf '[build_ext]\nparallel = 2\n' >"$venv/build.cfg"
    DIST_EXTRA_CONFIG="$PWD/$venv/build.cfg" install --no-build-isolation "$@" torch-scatter
}

scatter_works() {
    "$venv/bin/python" -c 'import torch_scatter'
}

# pip's cache may hold a wheel that was built against another torch: it installs, and fails later.
install_scatter() {
    scatter_works && return
    build_scatter || return
    scatter_works || { build_scatter --no-cache-dir --force-reinstall && scatter_works; }
}

supported='import sys; sys.exit(not (3, 10) <= sys.version_info[:2] <= (3, 13))'
if ! "$python" -c "$supported" 2>/dev/null; then
    version=$("$python" --version 2>/dev/null || echo 'not an interpreter')
    echo "setup: graphfold needs Python 3.10 to 3.13, but '$python' is $version." \
        "Name another: make setup PYTHON=python3.11" >&2
    exit 2
fi

if ! "$venv/bin/python" -m pip --version >/dev/null 2>&1; then
    echo "[1/4] making $venv"
    "$python" -m venv --clear "$venv"
fi
echo "[2/4] torch"
install torch setuptools wheel hatchling
echo "[3/4] graphfold and its other libraries"
install --no-build-isolation --editable '.[dev]'
echo "[4/4] torch-scatter (compiled once, a few minutes)"
if ! install_scatter >"$log" 2>&1; then
    "$venv/bin/python" -m pip uninstall -qq --yes torch-scatter >>"$log" 2>&1 || true
    echo "      it cannot be built here ($log says why): graphfold uses torch's own kernels"
fi
echo "done: . $venv/bin/activate"
