# Everything goes through .venv, which `make` creates and fills; constraints.txt pins what goes in.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/installed
SCENARIO ?= scenarios/quickstart.yaml
WORKERS ?= 2

.PHONY: run test check bench shuffle slow schedules reference clean install

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

bench: $(STAMP)
	$(BIN)/python tools/bench.py

shuffle: $(STAMP)
	$(BIN)/python tools/shuffle.py

schedules: CASES ?= ../shared/reference/vllm-schedules
schedules: $(STAMP)
	$(BIN)/python tools/schedules.py $(CASES)

reference: CASES ?= ../shared/reference
reference: $(STAMP)
	$(BIN)/python tools/reference.py $(CASES)

install: $(STAMP)

$(STAMP): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[dev]'
	touch $(STAMP)

clean:
	rm -rf $(VENV) build dist out *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	find isim tests tools -name __pycache__ -type d -prune -exec rm -rf {} +
