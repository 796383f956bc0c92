# Everything runs in the project's own environment, .venv/, which the first command makes from requirements.lock.

.DEFAULT_GOAL := help
.PHONY: help setup ablation lecture results picture test test-slow test-cluster soak pytest lint format types imports lock wheel clean

VENV := .venv
BIN := $(VENV)/bin
# Written when set-up has ended well. It holds the folder that the environment was made in.
DONE := $(VENV)/.complete

PIP := $(BIN)/python -m pip --disable-pip-version-check

# Pythons to build the environment with, the first that suits: make setup PYTHON=/opt/python/bin/python3
PYTHON ?= python3 python3.14 python3.13 python3.12 python3.11
SUITS := import sys, venv, ensurepip; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 14))

# One thread a process: the tests run side by side, and the number of threads moves results by 1e-7.
PYTEST := OMP_NUM_THREADS=1 MKL_NUM_THREADS=1 $(BIN)/python -m pytest -n auto --maxprocesses 8 --dist worksteal

# Scripts of an environment that was moved or copied with its folder still point at the old place: set up again.
ifneq ($(shell cat $(DONE) 2>/dev/null),$(CURDIR))
.PHONY: $(DONE)
endif

help: ## this list
	@echo "make ablation and make test do all the set-up they need."
	@awk -F ':[^#]*## ' '/^[a-z-]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' Makefile

setup: $(DONE) ## make .venv/ with trilab and python in it; again after requirements.lock or pyproject.toml changed
	@echo "Ready: $(BIN)/python, $(BIN)/trilab"

ablation: $(DONE) ## the main job: ten strategies, three seeds, a table (minutes)
	$(BIN)/python train.py -m experiment=part03

lecture: $(DONE) ## every rung of the lecture's ladder, from bigram to LayerNorm
	$(BIN)/python train.py -m 'experiment/lecture=glob(*)' hydra/launcher=joblib

results: $(DONE) ## train what docs/results.md shows and is not trained yet; write its tables and pictures (half an hour)
	$(BIN)/python train.py -m experiment=part03
	$(BIN)/python train.py -m 'experiment/lecture=glob(*)' seed=1337,0,1 hydra/launcher=joblib
	$(BIN)/python train.py -m experiment=tuned
	$(BIN)/python train.py -m experiment=budget/params
	$(BIN)/python train.py -m experiment=budget/flops
	$(BIN)/python -m trilab.report.results docs/results.md outputs
	$(BIN)/python -m tests.lecture_windows outputs/lecture --page docs/results.md

test: lint ## all that is quick: style, types, walls, tests (minutes)
	$(PYTEST) -m "not slow and not cluster"

test-slow: $(DONE) ## the tests that train in earnest
	$(PYTEST) -m "slow and not cluster"

test-cluster: $(DONE) ## the tests on a SLURM of their own and on two nodes; needs root, slurm-wlm, munge, iproute2
	$(PYTEST) -n 0 -m cluster

picture: $(DONE) ## the README's picture of the page, after make ablation; needs Chromium
	$(BIN)/python -m tests.report.page.screenshot docs/report.png outputs/part03

soak: $(DONE) ## kill trainings at fifty random moments; their results go into docs/reliability.md (about 20 minutes)
	OMP_NUM_THREADS=1 MKL_NUM_THREADS=1 $(BIN)/python -m tests.soak --page docs/reliability.md

lint: $(DONE) ## style, types, walls and known vulnerabilities, changing nothing
	$(BIN)/python -m ruff check
	$(BIN)/python -m ruff format --check
	$(BIN)/lint-imports --no-logo
	$(BIN)/python -m mypy
	$(BIN)/python -m tests.audit

format: $(DONE) ## put the code in order
	$(BIN)/python -m ruff check --fix-only
	$(BIN)/python -m ruff format

# After a change of pyproject.toml: make lock. To raise versions: make lock UPGRADE="wandb rich". What a build of torch
# adds for one machine (+cpu, CUDA's packages) is left out, for pip to resolve on each.
lock: ## bring .venv/ to what pyproject.toml asks for, then write its versions into requirements.lock
	@test -e $(DONE) || $(MAKE) $(DONE)
	$(PIP) install --quiet --no-build-isolation --upgrade $(UPGRADE) --editable '.[dev]'
	@sed '/^[^#]/,$$d' requirements.lock > $(VENV)/lock
	@$(PIP) list --format=freeze --exclude pip --exclude trilab > $(VENV)/freeze && test -s $(VENV)/freeze
	@sed -e 's/+.*//' -e '/^nvidia-/d' -e '/^cuda-/d' -e '/^triton==/d' $(VENV)/freeze | LC_ALL=C sort -f >> $(VENV)/lock
	@mv $(VENV)/lock requirements.lock

wheel: $(DONE) ## build dist/trilab-*.whl, conf/ included
	$(BIN)/python -m hatchling build -t wheel

clean: ## remove .venv/, builds and caches; data/ and outputs/ stay
	rm -rf $(VENV) build dist .hypothesis .mypy_cache .pytest_cache .ruff_cache .import_linter_cache
	find src tests train.py -name __pycache__ -prune -exec rm -rf {} +

# A set-up that was broken off is completed: what pip had half written (no INSTALLER yet) is installed again.
$(DONE): requirements.lock pyproject.toml
	@if test -e $(DONE) && test "$$(cat $(DONE))" != "$(CURDIR)"; then rm -rf $(VENV); fi
	@rm -f $(DONE)
	@$(BIN)/python -c '$(SUITS)' 2>/dev/null && $(BIN)/python -m pip --version >/dev/null 2>&1 || { \
	    for python in $(PYTHON); do \
	        if "$$python" -c '$(SUITS)' 2>/dev/null; then \
	            "$$python" -m venv --clear $(VENV) && exit; \
	        fi; \
	    done; \
	    echo "trilab needs Python 3.11 to 3.14 with venv and ensurepip (Debian, Ubuntu: apt install python3-venv)."; \
	    echo "None of these is one: $(PYTHON). Name yours: make setup PYTHON=/path/to/python3"; \
	    exit 1; } >&2
	@echo "Installing requirements.lock into $(VENV)/ (some minutes the first time)"
	@for info in $(VENV)/lib/python3.*/site-packages/*.dist-info; do \
	    test -e "$$info/INSTALLER" || rm -rf "$$info"; done
	@$(PIP) install --quiet -r requirements.lock
	@$(PIP) install --quiet --no-deps --no-build-isolation --editable .
	@printf '%s\n' "$(CURDIR)" > $(DONE)
