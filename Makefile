# Needs python3 (3.11 or newer) and make; Java 17 as well for whatever runs Spark.
# Everything else is fetched into .tools/ and .venv/, from whichever index pip and uv are set to.

PYTHON ?= python3
UV_VERSION := 0.13.7
UV := $(shell command -v uv || echo .tools/bin/uv)
BIN := .venv/bin
READY := .venv/.ready

export UV_PYTHON_DOWNLOADS := never
# Where compiled modules are not kept, each process compiles for seconds all that it imports, and
# the tests start hundreds of them.
unexport PYTHONDONTWRITEBYTECODE

define CHECK_PYTHON
@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
  echo "headrace needs Python 3.11 or newer, and $(PYTHON) is not ($$($(PYTHON) --version 2>&1));" \
    "name another one: make PYTHON=python3.12" >&2; exit 2; }
endef

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
SEEDS ?= 1000
LIVES ?= 12
SINGLE ?= --single --every-seam
# What needs no JVM, no server, no installation and no histories.
QUICK := -m "not postgresql and not processes" --both-stores $(addprefix --ignore=tests/,crash migrations simulation spark)

.PHONY: help install demo quick test stores coverage check format crash soak chaos simulate properties mutants bench docs reference lock changelog release hooks clean

help: ## list what can be made
	@echo "make TARGET, where TARGET is one of"
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "  %-10s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

install: $(READY) ## make .venv as requirements.lock says; the other targets do it when they need it

demo: $(READY) ## a million rows through Spark into an Iceberg table, in one command
	$(BIN)/headrace run examples/demo.conf

quick: $(READY) ## the inner loop: all that needs no Spark, no PostgreSQL and no installation; fewer examples (90 s)
	HYPOTHESIS_PROFILE=quick $(BIN)/pytest -q -n 2 $(QUICK)

test: $(READY) ## each proof once: stores take turns, a few kills stand for all; also that each requirement is proved (20 min)
	$(BIN)/pytest -n 2 --durations=10

stores: $(READY) ## the other half of test: whose turn was on one store runs on the other (4 min)
	$(BIN)/pytest -n 2 --both-stores -m other_store

coverage: $(READY) ## branch coverage of the model by its own tests, which is to be whole
	$(BIN)/pytest -q tests/model --cov=headrace.model --cov-branch --cov-report=term-missing --cov-fail-under=100

check: $(READY) ## lint, format, types, import contracts, spelling, dependencies, sizes, leaks, mutations
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/pyright
	$(BIN)/lint-imports
	$(BIN)/codespell
	$(BIN)/deptry src
	$(BIN)/python -m tools.sizes
	$(BIN)/python -m tools.leaks
	$(BIN)/python -m tools.mutants --check

format: $(READY) ## format the code, and mend what ruff can mend by itself
	$(BIN)/ruff check --fix
	$(BIN)/ruff format

crash: $(READY) ## kill real processes at every seam, on both stores (an hour and more)
	$(BIN)/pytest -m crash --all-crash

soak: $(READY) ## random writes to lake tables while they are optimized, with kills  [SEED=7 STEPS=120]
	$(if $(SEED),SEED=$(SEED)) $(if $(STEPS),STEPS=$(STEPS)) $(BIN)/pytest --soak -m soak

chaos: $(READY) ## an installation on PostgreSQL under random faults  [MINUTES=5 SEED=7]
	$(BIN)/python -m tests.chaos $(if $(MINUTES),--minutes $(MINUTES)) $(if $(SEED),--seed $(SEED))

simulate: $(READY) ## look for counterexamples: every single fault, then SEEDS random histories; LIVES months of groups and of streams; first see that it finds missing guards  [SEED=7]
	$(if $(SEED),,$(BIN)/pytest -n 2 --all-histories -m histories)
	$(BIN)/python -m tests.simulation $(if $(SEED),--seed $(SEED),--lives $(LIVES) --streams $(LIVES) $(SINGLE) --seeds $(SEEDS))

properties: $(READY) ## look for counterexamples of each property, with 20 times the examples (10 min)
	HYPOTHESIS_PROFILE=thorough $(BIN)/pytest -n 2 -m hypothesis

mutants: $(READY) ## remove each guard in a copy; its tests must fail  [ID=L1]
	$(BIN)/python -m tools.mutants $(ID)

bench: $(READY) ## measure against the aims  [NAME=protocol]
	$(BIN)/python -m bench $(NAME)

docs: $(READY) ## build the documentation into site/
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet

reference: $(READY) ## write the pages that follow from declarations: commands, job options
	$(BIN)/python -m tools.reference

lock: $(UV) ## resolve the dependencies again and write requirements.lock
	$(UV) pip compile pyproject.toml --all-extras --group dev --universal --upgrade --generate-hashes \
	  --no-annotate --no-header --python-version 3.11 --quiet -o requirements.lock

changelog: $(READY) ## show what the next release's notes will say
	$(BIN)/towncrier build --draft --version next

release: $(READY) ## try a release: build, install the wheel elsewhere, run the demo; tag it  [VERSION=0.2.0]
	$(BIN)/python -m tools.release --uv $(UV) $(if $(VERSION),--version $(VERSION))

hooks: $(READY) ## have git run the quick checks before each commit
	$(BIN)/prek install

clean: ## remove what make made; .headrace/, with its tables, stays
	rm -rf .venv .tools site dist .pytest_cache .ruff_cache .import_linter_cache .hypothesis .coverage

.tools/bin/uv:
	$(CHECK_PYTHON)
	$(PYTHON) -m venv .tools
	.tools/bin/pip install --quiet --disable-pip-version-check uv==$(UV_VERSION)

$(READY): requirements.lock pyproject.toml | $(UV)
	$(CHECK_PYTHON)
	test -x $(BIN)/python || $(UV) venv --quiet --python "$$($(PYTHON) -c 'import sys; print(sys.executable)')" .venv
	$(UV) pip sync --quiet --python $(BIN)/python --require-hashes requirements.lock
	$(UV) pip install --quiet --python $(BIN)/python --no-deps -e .
	@touch $@
