# Every target sets up what it needs in .venv; nothing else on the machine is touched.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
WORKERS ?= 2
# whole files to a worker: what the tests of a file share is fitted once
DIST ?= loadfile
SECONDS ?= 600
SEED ?= 0
MUTANTS ?= 300
# pytest workers share the cores: one BLAS thread each
export OMP_NUM_THREADS ?= 1
export OPENBLAS_NUM_THREADS ?= 1

.PHONY: run test test-all fuzz mutate coverage test-oldest test-package stranger check docs bench table1 clean

$(BIN)/python:
	$(PYTHON) -m venv $(VENV)

$(VENV)/.run: pyproject.toml | $(BIN)/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[cli]'
	touch $@

$(VENV)/.test: pyproject.toml | $(BIN)/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[all,test]'
	touch $@ $(VENV)/.run

$(VENV)/.docs: pyproject.toml | $(BIN)/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[docs]'
	touch $@ $(VENV)/.run

run: $(VENV)/.run
	$(BIN)/otdro demo

test: $(VENV)/.test
	$(BIN)/python -m pytest -n $(WORKERS) --dist $(DIST) -m "not slow"

test-all: $(VENV)/.test test-package
	$(BIN)/python -m pytest -n $(WORKERS) --dist $(DIST) -m "not package"

test-package: $(VENV)/.test
	$(BIN)/python -m pytest -m package

# random fits of every kind; a failure is printed and goes into tests/test_fuzz.py
fuzz: $(VENV)/.test
	cd tests && ../$(BIN)/python fuzz.py --seconds $(SECONDS) --seed $(SEED)

# small faults in the mathematics; what no test notices is listed in .mutate/survivors.txt
mutate: $(VENV)/.test
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[mutate]'
	$(BIN)/python tests/mutate.py --mutants $(MUTANTS) --seed $(SEED) --workers $(WORKERS)

# branch coverage of src/, which is to be at least 95%
coverage: $(VENV)/.test
	$(BIN)/python -m pip install --quiet --disable-pip-version-check pytest-cov
	$(BIN)/python -m pytest -n $(WORKERS) --dist $(DIST) -m "not package" --cov=src/otdro --cov-branch --cov-report=term:skip-covered --cov-fail-under=95

# the lowest versions that pyproject.toml declares
test-oldest:
	$(PYTHON) -m venv .venv-oldest
	$(PYTHON) tests/oldest.py > .venv-oldest/constraints.txt
	.venv-oldest/bin/python -m pip install --quiet --disable-pip-version-check -c .venv-oldest/constraints.txt -e '.[all,test]'
	# scikit-learn 1.6 refuses to load its test tools beside array-api-compat without this variable
	# Matplotlib 3.9 calls what pyparsing deprecates; scikit-learn 1.6 warns of a change in 1.7
	SCIPY_ARRAY_API=1 .venv-oldest/bin/python -m pytest -n $(WORKERS) --dist $(DIST) -m "not slow" -W ignore::DeprecationWarning -W ignore::FutureWarning

stranger:
	.ci/stranger

check: $(VENV)/.test
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

# warnings are errors; links are checked in the pages that were written, without the network
docs: $(VENV)/.docs
	$(BIN)/python -m sphinx -b html -W --keep-going -j $(WORKERS) -q docs docs/_build/html
	$(BIN)/python docs/check_links.py docs/_build/html

bench: $(VENV)/.test
	$(BIN)/python benchmarks/exact.py

# the paper's table; ARGS="--reps 3" passes options; fails if a fit raised
table1: $(VENV)/.test
	$(BIN)/python experiments/table1.py $(ARGS)

clean:
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache docs/_build docs/api docs/auto_examples docs/sg_execution_times.rst
