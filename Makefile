# `make demo` and `make test` do their own set-up on a machine with Python 3.11+, make and a C compiler.
PYTHON ?= python3
VENV := .venv
RUN := $(VENV)/bin
WORKERS ?= 2

.PHONY: demo test test-all lint bench clean help

help:
	@echo "make demo | test | test-all | lint | bench | clean"

$(VENV)/installed: pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "trustirl needs Python 3.11 or newer: make PYTHON=python3.11 ...")'
	$(PYTHON) -m venv $(VENV)
	$(RUN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[dev]'
	touch $@

demo: $(VENV)/installed
	$(RUN)/trustirl train piro --task gridworld --out runs/demo --overwrite

test: $(VENV)/installed
	$(RUN)/python -m pytest -n $(WORKERS) -m "not slow" --durations=10

test-all: $(VENV)/installed
	TRUSTIRL_EXAMPLES=5000 $(RUN)/python -m pytest -n $(WORKERS) --durations=20

lint: $(VENV)/installed
	$(RUN)/ruff check .
	$(RUN)/ruff format --check .
	$(RUN)/mypy
	$(RUN)/lint-imports

bench: $(VENV)/installed
	$(RUN)/python benchmarks/exact_world.py

clean:
	rm -rf $(VENV) runs build dist .hypothesis .mypy_cache .ruff_cache .import_linter_cache
