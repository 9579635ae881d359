# Everything runs in a virtual environment of its own. `make demo` needs python >= 3.10 and make, nothing else.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
DEMO_PORT ?= 8000
# Compiled once and kept, not again by each of the hundreds of processes that the tests start.
export PYTHONDONTWRITEBYTECODE :=

.PHONY: chaos demo test test-gpu test-real story zoo zoo-fast check fast generate lint types picture docs bench clean setup setup-dev

setup: $(VENV)/.stamp-lab
setup-dev: $(VENV)/.stamp-dev

# The CPU build of torch is several times smaller; where the index has none under this name, the default build works as well.
$(VENV)/.stamp-lab: pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10) and "runbook needs Python 3.10 or newer: make PYTHON=python3.11 …")'
	$(PYTHON) -m venv $(VENV) || { echo "no venv module: on Debian and Ubuntu, apt install python3-venv" >&2; exit 1; }
	$(BIN)/pip install --quiet --upgrade pip
	$(BIN)/pip install --quiet "torch==2.13.0" || $(BIN)/pip install --quiet torch
	$(BIN)/pip install --quiet -e ".[lab]"
	@touch $@

$(VENV)/.stamp-dev: $(VENV)/.stamp-lab
	$(BIN)/pip install --quiet -e ".[lab,dev]"
	@touch $@

## The whole EAGLE-3 story on this machine, through SSH, on real processes.
demo: setup
	@$(BIN)/runbook lab up --leftover --port $(DEMO_PORT)
	$(BIN)/runbook run playbooks/eagle3_fusion.yaml -e port=$(DEMO_PORT)

## The whole suite.
test: setup-dev
	$(BIN)/python -m pytest tests --ignore=tests/benchmarks -n 3 --dist loadfile

## The founding story and its faults on SGLang and vLLM themselves, without a GPU. The first time it sets them up in $(REAL_DIR):
## minutes, and a few GB. REAL="--without vllm" and the like leaves an engine out.
export REAL_DIR ?= .cache/real
test-real: setup-dev
	$(BIN)/python -m tests.real.setup $(REAL)
	$(BIN)/python -m pytest tests/real -m real

## The founding story on SGLang on an NVIDIA GPU of this machine, with CUDA graphs and without. It sets SGLang up in $(REAL_DIR), or takes
## GPU_PYTHON=/path/of/python of an environment that has it; GPU=N names the GPU. Without a GPU it says so at the end.
test-gpu: setup-dev
	$(BIN)/python -m tests.real.gpu

## The founding story on the lab: right, fusion skipped, a check that cannot match.
story: setup-dev
	$(BIN)/python -m pytest tests/e2e/test_story.py -k "whole_story or skipped_fusion or check_for_text"

## Hung or slow? Processes whose truth is known, on seeds that no rule was tuned on: in real time, under load, and judged again
## from perturbed recordings. About 45 minutes; the recordings stay in .cache/zoo.
ZOO := $(BIN)/python -m tests.zoo.run
zoo: setup-dev
	@status=0; \
	$(ZOO) --seeds odd:7..9 --jobs 12 --perturb 2 --out .cache/zoo/quiet --json .cache/zoo/quiet.json || status=1; \
	$(ZOO) --seeds 11 --jobs 12 --perturb 2 --load --out .cache/zoo/load --json .cache/zoo/load.json || status=1; \
	exit $$status

## Ten of its scenarios, as `make test` runs them.
zoo-fast: setup-dev
	$(BIN)/python -m pytest tests/zoo -q

## Faults on real parts (links, hosts, processes), by a seed, one line each; about 20 minutes. As root: it makes network namespaces.
SEED ?= 1
chaos: setup-dev
	$(BIN)/python -m tests.chaos.run --seed $(SEED)

## The fast tier: style, types, generated files, unit and contract tests.
check: setup-dev lint types fast

lint: setup-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: setup-dev
	$(BIN)/mypy

# Folders with hardly a fast test: looking for one costs every worker seconds.
NEVER_FAST := benchmarks e2e real property zoo editors
fast: setup-dev
	$(BIN)/python -m pytest tests $(addprefix --ignore=tests/,$(NEVER_FAST)) -m "not e2e and not slow and not property and not real and not gpu" -n 3

generate: setup-dev
	$(BIN)/runbook schema --write

## The pictures of the README, from two real runs.
picture: setup
	@DEMO_PORT=$(DEMO_PORT) $(BIN)/python docs/images/make.py

## The documentation as a site, in .cache/docs; every warning is an error.
docs: setup-dev
	$(BIN)/python -m sphinx -b html -W --keep-going -n -q docs .cache/docs

bench: setup-dev
	$(BIN)/python tests/benchmarks/bench.py

clean:
	rm -rf $(VENV) .cache .pytest_cache .mypy_cache .ruff_cache
