# make fit        train on embedded real data, test, draw a picture
# make test       style, types, and the whole test suite
# make test-fast  the daily loop: everything that takes no more than seconds
# make wheel      a wheel in dist/, with the kernels compiled for this machine's architecture where there is a compiler
# make test-pandas2  the data tests under pandas 2.3
# make docs       the documentation site in build/site, which needs no network; any warning is an error
# make cards      data/README.md of the cards in tsattn/data/public/cards.toml
# make paper      the experiments of the paper at their small size, two runs at once; run it again to go on
# make peers      an environment of its own, .venv-peers, for neuralforecast and statsforecast, which `fit` and the tests
#                 then find; it takes minutes and 2 GB

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
VENV2 := .venv-pandas2
STAMP2 := $(VENV2)/.installed
VENV_PEERS := .venv-peers
STAMP_PEERS := $(VENV_PEERS)/.installed
PYTEST = OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2

.PHONY: install fit lint test test-fast test-pandas2 cards docs paper peers wheel clean

install: $(STAMP)

$(STAMP): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[dev]'
	touch $@

fit: $(STAMP)
	$(BIN)/python -m tsattn fit --config co2_mlr.yaml

cards: $(STAMP)
	$(BIN)/python -c "from pathlib import Path; from tsattn.data.public.cards import with_cards; \
	page = Path('data/README.md'); page.write_text(with_cards(page.read_text('utf-8')), 'utf-8')"

docs: $(STAMP)
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build

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

paper: $(STAMP)
	$(BIN)/python benchmarks/paper/mup_transfer.py --jobs 2
	$(BIN)/python benchmarks/paper/in_context.py --jobs 2
	$(BIN)/python benchmarks/paper/etth1.py --jobs 2
	$(BIN)/python benchmarks/paper/language.py --jobs 2
	$(BIN)/python benchmarks/paper/blocks.py --jobs 2
	$(BIN)/python benchmarks/paper/mlbtc.py --jobs 2
	$(BIN)/python benchmarks/paper/mlbtc_prompts.py --jobs 2
	$(BIN)/python benchmarks/paper/generation.py
	$(BIN)/python benchmarks/paper/wall_clock.py
	$(BIN)/python benchmarks/paper/overview.py

# pandas is the one package that the constraints must not pin here
$(STAMP2): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV2)
	grep -v '^pandas' constraints.txt > $(VENV2)/constraints.txt
	$(VENV2)/bin/python -m pip install --quiet --constraint $(VENV2)/constraints.txt --editable . 'pandas>=2.3,<2.4' pytest pytest-timeout hypothesis
	touch $@

test-pandas2: $(STAMP2)
	OMP_NUM_THREADS=2 $(VENV2)/bin/python -m pytest tests/data

# statsforecast wants pandas below 3, so that the peers cannot live beside tsattn
$(STAMP_PEERS): peers-constraints.txt
	$(PYTHON) -m venv $(VENV_PEERS)
	$(VENV_PEERS)/bin/python -m pip install --quiet --constraint peers-constraints.txt 'neuralforecast>=3,<4' 'statsforecast>=2,<3' torch==2.13.0 pyarrow
	touch $@

peers: $(STAMP_PEERS)

clean:
	rm -rf $(VENV) $(VENV2) $(VENV_PEERS) .mypy_cache .pytest_cache .ruff_cache build dist
