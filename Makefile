# make demo | test | test-slow | test-llama-index | docs | ray | lint | bench | bench-scale | chaos — each sets up what it needs in .venv first.
PYTHON ?= python3
BIN := .venv/bin
PYTEST = PYTHONDONTWRITEBYTECODE= $(BIN)/python -m pytest
WORKERS := -n logical --dist loadfile --no-loadscope-reorder
CHAOS_SECONDS ?= 180
CHUNKS ?= 10000 50000
KEEP ?= .bench
INSTALL = $(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt

.PHONY: demo test test-slow test-llama-index docs ray lint bench bench-scale chaos clean

demo: .venv/demo.stamp
	$(BIN)/python examples/demo.py

# All tests of under half a second of CPU; make test-slow runs the others.
# Compiled modules are kept, or the many processes of the tests would compile them again and again: the first time, beside the type checker, which
# leaves a core free. As many workers as cores, since each worker reads every test first. In the order of their files, since those of the
# fewest tests take longest.
test: .venv/dev.stamp
	test -d tests/__pycache__ || { $(PYTEST) --collect-only > /dev/null & }; $(MAKE) lint && wait
	$(PYTEST) $(WORKERS) -m "not slow"

test-slow: .venv/dev.stamp
	$(PYTEST) $(WORKERS) -m slow

# The parts for LlamaIndex with the oldest llama-index-core that pyproject.toml allows, in an environment of its own (a gigabyte).
# With the newest one: make test-llama-index LLAMA_INDEX='<0.15'
LLAMA_INDEX ?= $(shell sed -n 's/.*"llama-index-core>=\([0-9.]*\),.*/==\1/p' pyproject.toml)
test-llama-index: BIN := .venv-llama-index/bin
test-llama-index:
	test -d $(BIN) || $(PYTHON) -m venv .venv-llama-index
	$(INSTALL) -e '.[offline,dev]'
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --upgrade --no-deps 'llama-index-core$(LLAMA_INDEX)'
	$(PYTEST) $(WORKERS) tests/search tests/search_v2

# The site of docs/, in site/: broken links and unlisted pages fail. The pictures: python docs/pictures/draw.py
docs: .venv/docs.stamp
	COLUMNS=96 NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --quiet
	@echo "python -m http.server --directory site"

# Builds on a Ray cluster of two nodes: 260 MB to install, and half a minute that make test does not spend.
ray: .venv/dev.stamp
	$(INSTALL) -e '.[ray]'
	$(BIN)/python -m pytest tests/ingest/test_ray.py

lint: .venv/dev.stamp
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

# Random kills, damage, faults and texts; CHAOS_SECONDS for each of some twenty loops. A failure names its seed.
chaos: .venv/dev.stamp
	IDX_TEST_CHAOS_SECONDS=$(CHAOS_SECONDS) $(BIN)/python -m pytest -q -s tests/reliability tests/ingest/test_bounded_work.py tests/ingest/test_any_text.py

bench: .venv/dev.stamp
	$(BIN)/python benchmarks/speed.py

# Latency, memory and recall of every combination of engines, beside other stacks, indexing, clients.
# CHUNKS="10000 50000 200000 1000000" for more; what is built stays in KEEP. PEERS="--peer txtai=PYTHON".
bench-scale: .venv/dev.stamp
	$(BIN)/python benchmarks/scale.py --chunks $(CHUNKS) --keep $(KEEP) $(PEERS)

clean:
	rm -rf .venv .mypy_cache .ruff_cache .pytest_cache .import_linter_cache

.venv/bin/python:
	$(PYTHON) -m venv .venv

.venv/demo.stamp: .venv/bin/python pyproject.toml constraints.txt
	$(INSTALL) -e '.[offline]'
	touch $@

.venv/docs.stamp: .venv/bin/python pyproject.toml constraints.txt
	$(INSTALL) -e '.[docs]'
	touch $@

.venv/dev.stamp: .venv/bin/python pyproject.toml constraints.txt
	$(INSTALL) -e '.[offline,huggingface-offline,dev]'
	touch $@ .venv/demo.stamp
