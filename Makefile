# Commands for a fresh clone; they need only Python:
#   make quickstart     make test     make help

PYTHON ?= python3
VENV ?= .venv
# Exact versions that the tests last passed with. `make test-all CONSTRAIN=`
# installs the newest allowed versions.
BIN := $(VENV)/bin
PINS_OF = $(shell $(1) -c 'import sys; \
  print("constraints-newest.txt" if sys.version_info >= (3, 13) \
  else "constraints.txt")')
PINS := $(call PINS_OF,$(or $(wildcard $(BIN)/python),$(PYTHON)))
CONSTRAIN ?= -c $(PINS)

PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check
NUMERICAL := tests/models tests/optim tests/objectives tests/training \
  tests/evals tests/weights tests/parallel tests/test_losses.py \
  tests/test_metrics.py tests/extras/zoo/test_golden.py
SOURCES := $(wildcard main.py configs benchmarks docs) vit_jax tests

.DEFAULT_GOAL := help
.PHONY: help quickstart paper test test-all test-isa test-plan test-export test-faults lint \
  format docs constraints clean

help:  ## Lists these commands.
	@grep -hE '^[a-z-]+:.*##' Makefile | sed -E 's/:[^#]*## */|/' \
	  | while IFS='|' read -r name text; do \
	      printf '  make %-12s %s\n' "$$name" "$$text"; done

quickstart: $(VENV)/.runtime  ## Pre-trains, fine-tunes and evaluates a small ViT.
	rm -rf runs/quickstart
	$(BIN)/python main.py --config=configs/quickstart.py --workdir=runs/quickstart

FIGURE ?=
DATA ?=
paper: $(VENV)/.runtime  ## Runs the small experiments of docs/paper.md; FIGURE=9 runs one.
	$(BIN)/python benchmarks/paper.py --figures=$(FIGURE) --data=$(DATA)

PYTEST = $(BIN)/python -m pytest -n logical --maxprocesses 8 --dist loadfile \
  --no-loadscope-reorder tests

test: lint  ## Runs lint, type checks and the quick tests.
	$(PYTEST) -m 'not slow and not large'

test-all: lint  ## Runs lint, type checks and all tests.
	$(PYTEST)

# Results differ in the last bits between instruction sets, within tolerances.
test-isa: $(VENV)/.dev  ## Runs the numerical tests without AVX-512, then without AVX.
	for isa in AVX2 SSE4_2; do \
	  XLA_FLAGS=--xla_cpu_max_isa=$$isa $(BIN)/python -m pytest -n logical \
	    --maxprocesses 8 --dist loadfile $(NUMERICAL) || exit 1; done

# Without libtpu, tests of plans skip TPU topologies; this target installs it.
test-plan: $(VENV)/.plan  ## Runs the tests of `main.py plan` with the TPU compiler; needs no TPU.
	$(BIN)/python -c 'import libtpu'
	$(BIN)/python -m pytest -rs tests/extras/plan

# `make test-all` skips these tests, because it does not install the libraries.
test-export: $(VENV)/.export  ## Runs the tests of `main.py export` to ONNX.
	$(BIN)/python -c 'import jax2onnx, onnxruntime'
	$(BIN)/python -m pytest -rs tests/extras/serve/test_export.py tests/extras/serve/test_serving.py

FAULTS ?= 40
SEED ?= 1
test-faults: $(VENV)/.dev  ## Disturbs a run FAULTS times and checks its final state (40 minutes).
	$(BIN)/python -m tests.faults --faults=$(FAULTS) --seed=$(SEED)

lint: $(VENV)/.dev  ## Runs lint and type checks only.
	$(BIN)/ruff check $(SOURCES)
	$(BIN)/mypy

format: $(VENV)/.dev  ## Fixes lint errors that can be fixed automatically.
	$(BIN)/ruff check --fix $(SOURCES)

docs: .venv-docs/.docs  ## Builds the documentation site, build/site/index.html.
	.venv-docs/bin/python -m sphinx -q -E -W --keep-going -c docs . build/site
	cp build/site/README.html build/site/index.html

# Of PYTHON, also where $(VENV) has another version.
constraints: PINS = $(call PINS_OF,$(PYTHON))
constraints:  ## Updates the pins of PYTHON to the newest allowed versions: CONTRIBUTING.md.
	@echo 'Resolving the newest versions in a scratch environment ...'
	rm -rf .venv-constraints
	$(PYTHON) -m venv .venv-constraints
	.venv-constraints/bin/python -m pip install --quiet \
	  --disable-pip-version-check '.[dev]'
	{ echo '# Exact versions that the tests last passed with: `make constraints`.'; \
	  .venv-constraints/bin/python -m pip freeze --exclude vit-jax; } > constraints.tmp
	mv constraints.tmp $(PINS)
	rm -rf .venv-constraints

clean:  ## Removes the environments and caches, but not runs/.
	rm -rf $(VENV) .venv-constraints .venv-plan .venv-export .venv-docs build *.egg-info
	rm -rf .pytest_cache .mypy_cache .ruff_cache
	find main.py configs vit_jax tests -name __pycache__ -prune -exec rm -rf {} +

# Empty files in the environment record what is installed. The package is
# editable, so changes of the code apply.
$(VENV)/.runtime: requirements.txt pyproject.toml $(PINS) | $(BIN)/python
	@echo 'Installing the requirements into $(VENV) (once, a few minutes) ...'
	@$(PIP) --editable . $(CONSTRAIN)
	@touch $@

$(VENV)/.dev: requirements.txt pyproject.toml $(PINS) | $(BIN)/python
	@echo 'Installing the requirements and the test tools into $(VENV) ...'
	@$(PIP) --editable '.[dev]' $(CONSTRAIN)
	@touch $(VENV)/.runtime $@

$(VENV)/.plan: pyproject.toml $(VENV)/.dev
	@echo 'Installing the test tools and the TPU compiler into $(VENV) (once) ...'
	@$(PIP) --editable '.[dev,plan]' $(CONSTRAIN)
	@touch $@

# jax2onnx requires an older Orbax than the pinned one.
$(VENV)/.export: pyproject.toml requirements.txt $(PINS) | $(BIN)/python
	@echo 'Installing ONNX into $(VENV) (once, a few minutes) ...'
	@grep -v '^orbax-checkpoint==' $(PINS) > $(VENV)/constraints.txt
	@$(PIP) --editable '.[dev,export]' \
	  $(if $(CONSTRAIN),-c $(VENV)/constraints.txt)
	@touch $@

# Autodoc imports vit_jax.
.venv-docs/.docs: pyproject.toml requirements.txt $(PINS)
	@$(MAKE) VENV=.venv-docs .venv-docs/bin/python
	@echo 'Installing Sphinx into .venv-docs (once, a few minutes) ...'
	@.venv-docs/bin/python -m pip install --quiet --disable-pip-version-check \
	  --editable '.[docs]' $(CONSTRAIN)
	@touch $@

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	  echo 'This project needs Python 3.11 or newer; "$(PYTHON)" is' \
	    "$$($(PYTHON) --version 2>&1). Choose another one:" \
	    'make PYTHON=python3.12 $(MAKECMDGOALS)'; exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || { \
	  echo '"$(PYTHON)" cannot create virtual environments. On Debian and' \
	    'Ubuntu: sudo apt install python3-venv'; exit 1; }
	@$(PYTHON) -m venv $(VENV)
