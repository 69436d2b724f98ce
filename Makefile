# `make` alone lists what there is. Everything runs in .venv, which `make setup` makes.

VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
DOCS_STAMP := $(VENV)/.installed-docs
PYTHON ?= python3
# Test processes; each computes on one thread, so that they do not fight over the cores.
WORKERS ?= 2
# Which tests: files or folders; all if none are named.
TESTS ?=
# Tests next to each other go to one process, which makes what a file shares (runs, networks) once;
# a process that has nothing left takes the last half of what another has.
DISTRIBUTED := -n $(WORKERS) --dist worksteal
# The share of the slow tests to run, from 0 to 1, and any text that decides which.
SHARE ?= 1
SEED ?= 0
# The tests of native code, and of what plans its memory.
SANITIZED := tests/batching/native/test_linear.py tests/batching/native/test_native_products.py \
	tests/batching/native/test_native_threads.py tests/batching/native/test_wide_rows.py \
	tests/batching/compiler tests/batching/engine
ONE_THREAD := OMP_NUM_THREADS=1 MKL_NUM_THREADS=1

.DEFAULT_GOAL := help
.PHONY: help setup setup-scatter test test-slow test-sanitized lint format demo docs wheels clean

help: ## list these commands
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-14s %s\n", $$1, $$2 }' Makefile

setup: $(STAMP) ## make .venv with all libraries and the graphfold command

$(STAMP): pyproject.toml constraints.txt scripts/setup.sh
	@PYTHON="$(PYTHON)" scripts/setup.sh
	@touch $@

setup-scatter: setup ## build torch-scatter into .venv, for the backend 'scatter' (minutes; optional)
	@scripts/setup_scatter.sh

test: setup ## run the tests that need neither network nor GPU
	$(ONE_THREAD) $(BIN)/python -m pytest $(DISTRIBUTED) $(TESTS)

test-slow: setup ## run the tests that take longer, or a SHARE of them that a SEED chooses
	$(ONE_THREAD) $(BIN)/python -m pytest $(DISTRIBUTED) -m 'slow and not gpu' --share $(SHARE) --seed "$(SEED)" $(TESTS)

test-sanitized: setup ## run the engine's tests with native code that watches its memory
	$(ONE_THREAD) scripts/test_sanitized.sh $(DISTRIBUTED) $(or $(TESTS),$(SANITIZED))

lint: setup ## check style, the directions of imports, and types
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports
	$(BIN)/mypy

format: setup ## put the code into the one format
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

demo: setup ## train, evaluate and apply a tree and a molecule model, no download
	@scripts/demo.sh

docs: setup $(DOCS_STAMP) ## build the pages as a site, build/docs/index.html; warnings are errors
	@$(BIN)/graphfold list --markdown > docs/options.md
	@PATH="$(CURDIR)/$(BIN):$$PATH" $(ONE_THREAD) $(BIN)/python -m sphinx -c docs --fail-on-warning --keep-going --quiet . build/docs
	@echo "build/docs/index.html"

$(DOCS_STAMP): $(STAMP)
	@$(BIN)/python -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "docs: the pages need Python 3.11 or newer: make setup PYTHON=python3.11" >&2; exit 2; }
	@echo "docs: installing Sphinx and its theme"
	@$(BIN)/python -m pip install -qq --no-input --disable-pip-version-check --no-build-isolation \
		--constraint constraints.txt --editable '.[docs]'
	@touch $@

wheels: setup ## make dist/: a checked wheel for each kind of machine, and the sdist
	@$(BIN)/python scripts/wheels.py

clean: ## remove .venv, caches and the demo
	rm -rf $(VENV) build dist demo .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
