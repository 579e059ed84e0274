# Everything a person or a CI job does here goes through these targets; `make help` lists them.

PYTHON ?= python3
ARGS ?=
ONLY ?=
UPGRADE ?=

BIN := .venv/bin
STAMPS := .venv/.stamps
PIP := $(BIN)/python -m pip --disable-pip-version-check --no-input
COMPILE = $(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes \
	--no-emit-index-url --no-header $(UPGRADE)
# The folders that hold Python, as far as they exist.
SOURCES = $(wildcard src tests bench deploy)

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
MAKEFLAGS += --no-print-directory

.PHONY: help
help: ## List what can be made
	@echo "Holdfast: make TARGET [VARIABLE=value ...]"
	@echo
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sort | sed -E 's/^([a-z-]+):.*## (.*)/\1\t\2/' \
		| awk -F '\t' '{ printf "  %-12s %s\n", $$1, $$2 }'
	@echo
	@echo "PYTHON=python3.12 chooses the interpreter that a new .venv is made with."

.PHONY: run
run: $(STAMPS)/holdfast ## Install Holdfast and start it (ARGS="..." goes to `holdfast up`)
	@exec $(BIN)/holdfast up $(ARGS)

.PHONY: install
install: $(STAMPS)/holdfast ## Make .venv with Holdfast and what it needs to run

.PHONY: install-dev
install-dev: $(STAMPS)/dev $(STAMPS)/holdfast ## Make .venv with the extras and the development tools too

.PHONY: test
test: install-dev ## Run the tests (ARGS="..." goes to pytest)
	@PYTHON=$(BIN)/python scripts/system-packages java strace postgres prometheus
	$(BIN)/python -m pytest -n 2 $(ARGS)

.PHONY: check
check: install-dev ## Lint, check the format, the types and the import layers
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy --strict $(SOURCES)
	$(BIN)/lint-imports --no-logo

.PHONY: format
format: install-dev ## Format the code and fix what the linter can fix
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

.PHONY: proof
proof: install-dev ## Compare 200,000 deliveries with an oracle while workers are killed (ARGS="sqlite --seed 7")
	@PYTHON=$(BIN)/python scripts/system-packages java postgres
	@exec $(BIN)/python -m tests.proof $(ARGS)

.PHONY: differ
differ: install-dev ## Compare random operations with Google's emulator (ARGS="--seed 7 --minutes 20")
	@PYTHON=$(BIN)/python scripts/system-packages java
	@exec $(BIN)/python -m tests.differential $(ARGS)

.PHONY: bench
bench: install-dev ## Run the benchmarks (ONLY=name for one of them)
	@PYTHON=$(BIN)/python scripts/system-packages java postgres
	@exec $(BIN)/python -m bench $(ONLY)

.PHONY: profile
profile: install-dev ## See where the time of the hot paths goes (ONLY=name for one of them)
	@$(BIN)/python -m bench.profiling $(ONLY)
	@$(BIN)/python -m bench.pages

# Each file is held to the one before it, so that the same version runs everywhere.
.PHONY: lock
lock: install-dev ## Lock the dependencies again (UPGRADE=--upgrade takes newer versions)
	$(COMPILE) --group build --output-file requirements/build.txt
	$(COMPILE) pyproject.toml --output-file requirements/runtime.txt
	$(COMPILE) pyproject.toml --extra all --constraint requirements/runtime.txt \
		--output-file requirements/all.txt
	$(COMPILE) pyproject.toml --extra all --group dev --constraint requirements/all.txt \
		--output-file requirements/dev.txt

.PHONY: clean
clean: ## Remove .venv, caches and build output; never the data in .holdfast
	rm -rf .venv build dist .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis .benchmarks
	find $(SOURCES) -type d -name __pycache__ -prune -exec rm -rf {} +

# A stamp says that a step was done after its inputs last changed.

$(STAMPS)/venv:
	@$(PYTHON) -c 'import sys; sys.exit(not (3, 11) <= sys.version_info < (3, 14))' || { \
		echo "Holdfast needs Python 3.11, 3.12 or 3.13, and $(PYTHON) is not one: try make PYTHON=python3.12 $(MAKECMDGOALS)" >&2; exit 1; }
	@PYTHON=$(PYTHON) scripts/system-packages venv
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null
	$(PYTHON) -m venv .venv
	@mkdir -p $(STAMPS) && touch $@

$(STAMPS)/runtime: $(STAMPS)/venv requirements/runtime.txt
	$(PIP) install --quiet --require-hashes -r requirements/runtime.txt
	@touch $@

$(STAMPS)/build: $(STAMPS)/venv requirements/build.txt
	$(PIP) install --quiet --require-hashes -r requirements/build.txt
	@touch $@

$(STAMPS)/dev: $(STAMPS)/runtime requirements/dev.txt
	$(PIP) install --quiet --require-hashes -r requirements/dev.txt
	@touch $@

$(STAMPS)/holdfast: $(STAMPS)/runtime $(STAMPS)/build pyproject.toml
	$(PIP) install --quiet --no-deps --no-build-isolation --editable .
	@touch $@
