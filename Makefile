# Every target sets up what it needs in .venv; nothing else on the machine is touched.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
WORKERS ?= 2

.PHONY: run test test-all test-package stranger check bench clean

$(BIN)/python:
	$(PYTHON) -m venv $(VENV)

$(VENV)/.run: pyproject.toml | $(BIN)/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[cli]'
	touch $@

$(VENV)/.test: pyproject.toml | $(BIN)/python
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[all,test]'
	touch $@ $(VENV)/.run

run: $(VENV)/.run
	$(BIN)/otdro demo

test: $(VENV)/.test
	$(BIN)/python -m pytest -n $(WORKERS) -m "not slow"

test-all: $(VENV)/.test test-package
	$(BIN)/python -m pytest -n $(WORKERS) -m "not package"

test-package: $(VENV)/.test
	$(BIN)/python -m pytest -m package

stranger:
	.ci/stranger

check: $(VENV)/.test
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

bench: $(VENV)/.test
	$(BIN)/python benchmarks/exact.py

clean:
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache
