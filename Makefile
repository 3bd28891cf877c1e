# The first run of a target builds .venv and installs what it needs; later runs start at once.

VENV   := .venv
BIN    := $(VENV)/bin
PYTHON ?= $(firstword $(shell for python in python3.11 python3; do \
	$$python -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $$python; done))

# What each kind of installation holds beside the library itself.
EXTRAS_demo  := [draw,serve]
EXTRAS_dev   := [all,test,dev]
EXTRAS_bench := [all,test,dev,bench]

# The variable, unlike the option -c, also reaches the environments in which pip builds packages.
export PIP_CONSTRAINT := $(CURDIR)/constraints.txt
export PIP_DISABLE_PIP_VERSION_CHECK := 1

# One thread per test process: two workers with two threads each would fight for two cores.
PYTEST := OMP_NUM_THREADS=1 $(BIN)/python -m pytest

.DEFAULT_GOAL := help
.PHONY: help demo gallery screenshot test check slow results bench rehearsal clean

help:  ## this list
	@sed -n 's/^\([a-z]*\):.*## /  make \1\t/p' $(MAKEFILE_LIST) | expand -t 16

demo: $(VENV)/.installed-demo  ## the shortest look at what this is
	$(BIN)/python examples/demo.py

MODEL ?= runs/demo
gallery: $(VENV)/.installed-dev  ## docs/gallery.md with every figure, drawn from the demo's model
	$(BIN)/python examples/gallery.py $(MODEL)

screenshot: $(VENV)/.installed-dev  ## docs/explorer.png, the explorer with the demo's model
	CLEARHEAD_SHOWN=$(MODEL) CLEARHEAD_SCREENSHOT=docs/explorer.png $(PYTEST) -q tests/browser -k picture_of_the_readme

test: $(VENV)/.installed-dev  ## the test suite without its slow tests
	$(PYTEST) -n 2 -m 'not slow'

slow: $(VENV)/.installed-dev  ## the whole suite, with many more generated examples
	$(PYTEST) -n 2 --hypothesis-profile=slow --timeout=3600

check: $(VENV)/.installed-dev  ## style, types, layers, caps, and every example in a docstring or in docs/
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-logo
	$(PYTEST) -q tests/architecture
	$(PYTEST) -q --doctest-modules --doctest-glob='*.md' src docs README.md

DATA ?= data
results: $(VENV)/.installed-bench  ## the figures of docs/results.md again: make results NAME=multi30k DATA=folder
	$(BIN)/python benchmarks/results.py $(NAME) --data $(DATA)

BENCHMARKS := train_step decode growth corpus tables looking explorer_hover
bench: $(VENV)/.installed-bench  ## the benchmarks that need neither data nor a model
	@set -e; for script in $(BENCHMARKS); do \
		echo "== $$script"; $(BIN)/python benchmarks/$$script.py; \
	done

rehearsal: $(VENV)/.installed-bench  ## the wheel in a new environment, and the README followed to the letter
	$(BIN)/python benchmarks/rehearsal.py

clean:  ## remove what was built, the environment included
	rm -rf $(VENV) build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

.PRECIOUS: $(VENV)/.installed-%
$(VENV)/.installed-%: pyproject.toml constraints.txt
	@test -n '$(PYTHON)' || { echo 'clearhead needs Python 3.11 or later; name it: make PYTHON=/path/to/python' >&2; exit 1; }
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet -c constraints.txt -e '.$(EXTRAS_$*)'
	@touch $@
