#!/usr/bin/env bash
# Checks all that runs on CUDA, in about ten minutes: the tests with the mark gpu, then the speeds of docs/engine.md.
#
#     scripts/gpu_check.sh FOLDER     FOLDER gets tests.txt, and a JSON file for each benchmark
#
# PYTHON is a Python with graphfold, its extra dev and torch for CUDA; WORKERS the processes of the tests.
set -euo pipefail
cd "$(dirname "$0")/.."
python=${PYTHON:-.venv/bin/python}
folder=${1:?"usage: scripts/gpu_check.sh FOLDER"}
"$python" -c 'import sys, torch; torch.cuda.is_available() or sys.exit("error: torch finds no CUDA device")'
mkdir -p "$folder"
"$python" -m graphfold --version | tee "$folder/version.txt"
failed=0
"$python" -m pytest -q -m gpu -n "${WORKERS:-8}" -p no:cacheprovider | tee "$folder/tests.txt" || failed=1
"$python" -m benchmarks sst --device cuda --batch-size 25,256 --json "$folder/sst.json"
"$python" -m benchmarks treefc --device cuda --batch-size 32,128 --json "$folder/treefc.json"
"$python" -m benchmarks molecules --device cuda --batch-size 64,512 --json "$folder/molecules.json"
exit $failed
