# Everything goes through .venv, which `make` creates and fills; constraints.txt pins what goes in.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/installed
SCENARIO ?= scenarios/quickstart.yaml
WORKERS ?= 2
OTHER_NUMPY ?= 1.26.4
OTHER := $(VENV)/numpy-$(OTHER_NUMPY)

.PHONY: run test check bench shuffle mutation mutants slow schedules reference real validation digests pages clean install

run: $(STAMP)
	$(BIN)/isim run $(SCENARIO)

test: $(STAMP)
	$(BIN)/python -m pytest -n $(WORKERS)

slow: $(STAMP)
	$(BIN)/python -m pytest -n $(WORKERS) -m slow

check: $(STAMP)
	$(BIN)/ruff check isim tests tools
	$(BIN)/ruff format --check isim tests tools
	$(BIN)/mypy isim tools
	$(BIN)/lint-imports
	$(BIN)/python tools/check_run_code.py
	$(BIN)/python tools/pages.py --check

bench: $(STAMP)
	$(BIN)/python tools/bench.py

shuffle: $(STAMP)
	$(BIN)/python tools/shuffle.py

mutation: $(STAMP)
	$(BIN)/python tools/mutation.py

mutants: $(STAMP)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[mutants]'
	$(BIN)/python tools/mutants.py $(MODULE)

schedules: CASES ?= ../shared/reference/vllm-schedules
schedules: $(STAMP)
	$(BIN)/python tools/schedules.py $(CASES)

reference: CASES ?= ../shared/reference
reference: $(STAMP)
	$(BIN)/python tools/reference.py $(CASES)

real: RUNS ?= ../shared/data/sim_to_real_gt
real: $(STAMP)
	$(BIN)/python tools/real_runs.py $(RUNS) --overhead

validation: $(STAMP)
	$(BIN)/python tools/validation.py

pages: $(STAMP)
	$(BIN)/python tools/pages.py

digests: $(STAMP)
	test -d $(OTHER) || $(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --only-binary :all: \
		--target $(OTHER) numpy==$(OTHER_NUMPY) || echo "numpy $(OTHER_NUMPY) cannot be had here"
	$(BIN)/python tools/digests.py --numpy $(OTHER)

install: $(STAMP)

$(STAMP): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[dev]'
	touch $(STAMP)

clean:
	rm -rf $(VENV) build dist out .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	find isim tests tools -name __pycache__ -type d -prune -exec rm -rf {} +
