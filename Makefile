# `make demo` and `make test` work on a machine with Python 3.10 or newer and make: what they need is put
# into .venv. To use another interpreter: make PYTHON=python3.12 test

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/installed
INSTALL := $(BIN)/python -m pip install -qq --constraint constraints.txt

# Unit tests first, since they answer in seconds. One run of pytest, so that its last line counts all tests.
TESTS := tests/unit $(filter-out tests/unit/ tests/__pycache__/,$(wildcard tests/*/ tests/test_*.py))
CHECKED := src tools tests $(wildcard benchmarks) $(wildcard examples)

# Models are built from their configs: no test or example may wait for the network.
export HF_HUB_OFFLINE := 1
export PIP_DISABLE_PIP_VERSION_CHECK := 1

.DEFAULT_GOAL := help
.PHONY: docs help demo test test-unit zoo lint format page bench bench-profile clean

help: ## Show these commands
	@grep -E '^[a-z-]+:.*## ' $(firstword $(MAKEFILE_LIST)) | sed -E 's/^([a-z-]+):.*## (.*)/  make \1\t\2/' | expand -t 20

demo: page ## Record a small model and show what the record tells
	$(BIN)/python examples/demo.py

test: page ## Run all tests
	@$(BIN)/python tools/get_chromium.py
	$(BIN)/python -m pytest $(TESTS)

test-unit: page ## Run the tests that need no torch: seconds
	$(BIN)/python -m pytest tests/unit

zoo: $(INSTALLED) ## Record, prove and save every architecture of the zoo: some 20 minutes
	$(BIN)/python -m pytest -n 2 -m "slow or not slow" tests/zoo

lint: $(INSTALLED) ## Check style, types, import directions and sizes
	$(BIN)/ruff check $(CHECKED)
	$(BIN)/ruff format --check $(CHECKED)
	$(BIN)/mypy
	$(BIN)/python tools/check_imports.py
	$(BIN)/python tools/check_sizes.py
	$(BIN)/python tools/check_errors.py

format: $(INSTALLED) ## Format the sources
	$(BIN)/ruff check --fix $(CHECKED)
	$(BIN)/ruff format $(CHECKED)

page: $(INSTALLED) ## Build the explorer's page again if its sources have changed
	@$(BIN)/python tools/build_page.py

bench: $(VENV)/installed-bench ## Measure the cost of a capture beside plain PyTorch and TorchLens
	$(BIN)/python benchmarks/capture_cost.py

docs: $(INSTALLED) ## Build the documentation as a site, in build/site
	@NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --quiet && echo "build/site/index.html"

bench-profile: $(INSTALLED) ## Measure what profiling promises: FLOPs, times, memory, cost of its checks
	$(BIN)/python -m benchmarks.profile_cost --json build/bench-profile.json --text build/bench-profile.txt

clean: ## Remove .venv, caches and built files
	rm -rf $(VENV) build dist src/torcheer/views/built src/torcheer/web/ui/node_modules .mypy_cache .pytest_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# Made anew when a requirement changes; the stamp comes last, so an interrupted install is repeated.
$(INSTALLED): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10) and "torcheer needs Python 3.10 or newer, this is " + sys.version.split()[0] + ". Name another: make PYTHON=python3.12 ...")'
	@echo "Installing torcheer and its tools into $(VENV): some minutes the first time"
	@$(PYTHON) -m venv $(VENV)
	@$(INSTALL) --editable '.[dev]'
	@touch $@

$(VENV)/installed-bench: $(INSTALLED)
	@$(INSTALL) --editable '.[bench]'
	@touch $@
