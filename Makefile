# `make demo` and `make test` do their own set-up on a machine with Python 3.11+, make and a C compiler.
PYTHON ?= python3
VENV := .venv
RUN := $(VENV)/bin
# Packages that only build others, such as hatchling, are pinned by what older and newer versions of pip read.
INSTALL := PIP_CONSTRAINT=constraints.txt PIP_BUILD_CONSTRAINT=constraints.txt $(RUN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt
WORKERS ?= 2

.PHONY: demo test test-all lint box2d bench tables docs release-check clean help

help:
	@echo "make demo | test | test-all | lint | docs | box2d | bench | tables | release-check | clean"

$(VENV)/installed: pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "trustirl needs Python 3.11 or newer: make PYTHON=python3.11 ...")'
	$(PYTHON) -m venv $(VENV)
	$(INSTALL) --editable '.[dev,mujoco]'
	touch $@

# LunarLander's physics: a wheel or, where there is none (Linux on ARM), a build of the same by another name. It takes
# a minute and finds swig only in the environment it is built in; so it is no part of the set-up above, and tasks that
# need it say so.
$(VENV)/box2d: $(VENV)/installed
	$(INSTALL) pygame-ce
	$(INSTALL) --only-binary box2d box2d 2>/dev/null || { $(INSTALL) setuptools wheel swig \
	  && PATH="$(CURDIR)/$(RUN):$$PATH" $(INSTALL) --no-build-isolation box2d-py; } \
	  || { echo "box2d-py could not be built: it needs a C++ compiler, for example g++."; exit 1; }
	touch $@

$(VENV)/envpool: $(VENV)/installed
	$(INSTALL) --editable '.[envpool]'
	touch $@

$(VENV)/ray: $(VENV)/installed
	$(INSTALL) --editable '.[ray,slurm]'
	touch $@

# With torch, which is large.
$(VENV)/interop: $(VENV)/installed
	$(INSTALL) --editable '.[interop,onnx]'
	touch $@

$(VENV)/robotics: $(VENV)/installed
	$(INSTALL) --editable '.[robotics]'
	touch $@

$(VENV)/bench: $(VENV)/installed
	$(INSTALL) --editable '.[bench]'
	touch $@

demo: $(VENV)/installed
	$(RUN)/trustirl train piro --task gridworld --out runs/demo --overwrite

# XLA's quicker ways to compile for CPUs, which take half as long; test-all compiles as users do. Bytecode is kept
# wherever the tests run, since they start many processes.
test: $(VENV)/installed
	PYTHONDONTWRITEBYTECODE= XLA_FLAGS="--xla_cpu_use_fusion_emitters=false --xla_cpu_parallel_codegen_split_count=1" $(RUN)/python -m pytest -n $(WORKERS) --dist loadfile --no-loadscope-reorder -m "not slow" --durations=10

# With what the quick set-up leaves out, so that no test is skipped for want of a package.
test-all: $(VENV)/installed $(VENV)/docs $(VENV)/box2d $(VENV)/envpool $(VENV)/ray $(VENV)/interop $(VENV)/release $(VENV)/robotics
	TRUSTIRL_EXAMPLES=5000 $(RUN)/python -m pytest -n $(WORKERS) --dist loadfile --no-loadscope-reorder --durations=20

lint: $(VENV)/installed
	$(RUN)/ruff check .
	$(RUN)/ruff format --check .
	$(RUN)/mypy
	$(RUN)/lint-imports

box2d: $(VENV)/box2d

bench: $(VENV)/bench
	$(RUN)/python benchmarks/exact_world.py
	$(RUN)/python benchmarks/throughput.py
	$(RUN)/python benchmarks/demos.py

$(VENV)/docs: $(VENV)/installed
	$(INSTALL) --editable '.[docs]'
	touch $@

# The site, in build/site; its notebooks run, those that have not changed since the last time come from build/notebooks.
docs: $(VENV)/docs
	$(RUN)/python -m sphinx -W --keep-going -q -c docs -d build/doctrees . build/site
	$(RUN)/python docs/check_site.py build/site

$(VENV)/release: $(VENV)/installed
	$(INSTALL) build twine cyclonedx-bom
	touch $@

# Wheels and source distribution in dist, tried where there is no source tree, and the list of what they bring in build/sbom.
# PYTHONS are those to try them with; every supported one on the PATH, if none is given.
release-check: $(VENV)/release
	$(RUN)/python packages/check.py $(PYTHONS)

tables: $(VENV)/installed
	$(RUN)/python benchmarks/tables.py

clean:
	rm -rf $(VENV) runs build dist jupyter_execute docs/errors.md .hypothesis .mypy_cache .ruff_cache .import_linter_cache
