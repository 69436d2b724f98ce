#!/bin/sh
# Makes .venv: the pinned libraries and graphfold itself (editable). Safe to run again at any time.
# PYTHON names the interpreter (default: python3).
set -eu
cd "$(dirname "$0")/.."
venv=.venv
python=${PYTHON:-python3}

install() {
    "$venv/bin/python" -m pip install -qq --no-input --disable-pip-version-check \
        --constraint constraints.txt "$@"
}

# Whether there is a torch-scatter that was built against another torch than that in .venv.
is_scatter_broken() {
    "$venv/bin/python" -m pip show -qq torch-scatter 2>/dev/null &&
        ! "$venv/bin/python" -c 'import torch_scatter' 2>/dev/null
}

supported='import sys; sys.exit(not (3, 10) <= sys.version_info[:2] <= (3, 13))'
if ! "$python" -c "$supported" 2>/dev/null; then
    version=$("$python" --version 2>/dev/null || echo 'not an interpreter')
    echo "setup: graphfold needs Python 3.10 to 3.13, but '$python' is $version." \
        "Name another: make setup PYTHON=python3.11" >&2
    exit 2
fi

if ! "$venv/bin/python" -m pip --version >/dev/null 2>&1; then
    echo "[1/3] making $venv"
    "$python" -m venv --clear "$venv"
fi
echo "[2/3] torch"
install torch setuptools wheel hatchling
echo "[3/3] graphfold and its other libraries"
install --no-build-isolation --editable '.[dev]'
if is_scatter_broken; then
    "$venv/bin/python" -m pip uninstall -qq --yes torch-scatter
    echo "      torch-scatter was built for another torch, and is removed; make setup-scatter builds it"
fi
echo "done: . $venv/bin/activate"
