# Needs Python 3.11 or 3.12 and make, nothing else. `make` alone lists the targets.

PYTHON ?= $(shell for p in python3.11 python3.12 python3; do \
	$$p -c 'import sys; sys.exit(not (3, 11) <= sys.version_info < (3, 13))' 2>/dev/null \
	&& { echo $$p; break; }; done)
BIN := .venv/bin
STAMP := .venv/.installed

.PHONY: help
help:  ## list the targets
	@sed -n 's/^\([.a-z]*\):.*  ## /make \1\t/p' Makefile | expand -t 14

.PHONY: .venv
.venv: $(STAMP)  ## create the virtual environment, or bring it up to date

# torch comes alone and first, at its exact version: with a looser pin pip is free to take a newer
# release from the package index, and gigabytes of CUDA libraries with it, even where a wheel for
# the CPU is at hand. The second call then finds torch installed and leaves it as it is.
$(STAMP): pyproject.toml constraints.txt
	@test -n "$(PYTHON)" || { echo "no Python 3.11 or 3.12 found; try: make PYTHON=/path/to/python3.11" >&2; exit 1; }
	test -x $(BIN)/pip || $(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet -c constraints.txt "$$(grep '^torch==' constraints.txt)"
	$(BIN)/python -m pip install --quiet -c constraints.txt -e '.[dev]'
	@touch $@

.PHONY: demo
demo: $(STAMP)  ## train and generate with a small swarm on this machine
	$(BIN)/python -m node.demo

# hivemind, with its forks and its locks shared by all children, gets processes of its own: a child
# that a test kills at the wrong moment must not stall the tests after it.
.PHONY: test
test: $(STAMP)  ## run all tests that need no GPU
	$(BIN)/python -m pytest -m "not swarm and not e2e and not gpu" tests
	$(BIN)/python -m pytest -m "swarm and not gpu" tests/contract
	$(BIN)/python -m pytest -m "swarm and not gpu" --ignore=tests/contract tests
	$(BIN)/python -m pytest -m "e2e and not gpu" tests/e2e

.PHONY: lint
lint: $(STAMP)  ## check format, style, layers and types
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/lint-imports
	$(BIN)/mypy

.PHONY: reference
reference: $(STAMP)  ## write cli.md, reasons.md and events.md of docs/reference anew, after a change of what they describe
	$(BIN)/python -m tools.cli_reference
	$(BIN)/python -m tools.reasons_page
	$(BIN)/python -m tools.event_reference

# for the other Python: make wheel-check WHEEL_PYTHON=python3.12
WHEEL_PYTHON ?= $(PYTHON)
.PHONY: wheel-check
wheel-check: $(STAMP)  ## build sdist and wheel, install the wheel in a clean environment, try it there
	$(BIN)/python -m tools.wheel_check --python $(WHEEL_PYTHON)

.PHONY: docs
docs: $(STAMP)  ## build the documentation as web pages in build/site
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet

.PHONY: clean
clean:  ## remove caches and build output; the virtual environment stays
	rm -rf build dist *.egg-info .coverage htmlcov .hypothesis .import_linter_cache .mypy_cache .pytest_cache .ruff_cache
	find . -path ./.venv -prune -o -name __pycache__ -type d -prune -exec rm -rf {} +
