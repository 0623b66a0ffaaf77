# make fit        train on embedded real data, test, draw a picture
# make test       style, types, and the whole test suite
# make test-fast  the daily loop: everything that takes no more than seconds
# make wheel      a wheel in dist/, with the kernels compiled for this machine's architecture where there is a compiler
# make test-pandas2  the data tests under pandas 2.3

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
VENV2 := .venv-pandas2
STAMP2 := $(VENV2)/.installed
PYTEST = OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2

.PHONY: install fit lint test test-fast test-pandas2 wheel clean

install: $(STAMP)

$(STAMP): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[dev]'
	touch $@

fit: $(STAMP)
	$(BIN)/python -m tsattn fit --config co2_mlr.yaml

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

test: lint
	$(PYTEST)

test-fast: lint
	$(PYTEST) -m "not slow"

wheel: $(STAMP)
	$(BIN)/python -m hatchling build --target wheel --directory dist

# pandas is the one package that the constraints must not pin here
$(STAMP2): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV2)
	grep -v '^pandas' constraints.txt > $(VENV2)/constraints.txt
	$(VENV2)/bin/python -m pip install --quiet --constraint $(VENV2)/constraints.txt --editable . 'pandas>=2.3,<2.4' pytest pytest-timeout hypothesis
	touch $@

test-pandas2: $(STAMP2)
	OMP_NUM_THREADS=2 $(VENV2)/bin/python -m pytest tests/data

clean:
	rm -rf $(VENV) $(VENV2) .mypy_cache .pytest_cache .ruff_cache build dist
