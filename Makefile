# `make` or `make help` lists the targets. Everything installs what is missing into .venv first.
PYTHON ?= $(or $(shell command -v python3.11),python3)
VENV := .venv
RUN := $(VENV)/bin/python
READY := $(VENV)/.ready
ARGS ?=
RUNS ?= outputs
OUT ?= reports/latest

export OMP_NUM_THREADS ?= 1

.DEFAULT_GOAL := help
.PHONY: help install run sweep report test test-slow lint nano sandbox-image \
	sandbox-image-offline doctor bench-generate bench-judge bench-prepare clean

help: ## list the targets
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 24

install: $(READY) ## make .venv with everything pinned in pyproject.toml

$(READY): pyproject.toml
	@$(PYTHON) -c 'import sys; v = sys.version_info; sys.exit(0 if v >= (3, 11) else \
		f"Python 3.11 or newer is needed, {v.major}.{v.minor} was found; try make PYTHON=python3.11")'
	@test -x $(RUN) || $(PYTHON) -m venv $(VENV)
	$(RUN) -m pip install --quiet --disable-pip-version-check torch==2.13.0
	$(RUN) -m pip install --quiet --disable-pip-version-check --editable '.[dev]'
	@touch $@

run: $(READY) ## the main job: SPO on MiniContests with the bundled model (ARGS="key=value ...")
	$(RUN) run.py experiment=quick $(ARGS)

sweep: $(READY) ## SPO, PPO and GRPO on two seeds, then the report (ARGS="key=value ...")
	$(RUN) run.py -m algo=spo,ppo,grpo seed=0,1 task=mini name=sweep $(ARGS)
	$(MAKE) report

report: $(READY) ## tables, curves and a page from run folders (RUNS=outputs OUT=reports/latest)
	$(RUN) -m analysis.report runs=$(RUNS) out=$(OUT)

test: $(READY) ## the tests, under ten minutes; the Docker half where an engine answers
	$(RUN) -m pytest -q -m "not slow and not vllm" $(ARGS)

test-slow: $(READY) ## the rest: whole data sets, thousands of programs, an engine killed in mid-run
	$(RUN) -m pytest -q -m "slow and not vllm" $(ARGS)

lint: $(READY) ## ruff: rules and format
	$(RUN) -m ruff check .
	$(RUN) -m ruff format --check .

nano: $(READY) ## rebuild the bundled model from nothing
	$(RUN) -m experiments.nano out=assets/nano seed=0

sandbox-image: $(READY) ## the sandbox's Docker image, from the official Python image
	$(RUN) -m envs.sandbox.image.build

sandbox-image-offline: $(READY) ## the same from Debian packages, with no image registry
	$(RUN) -m envs.sandbox.image.build --offline

doctor: $(READY) ## what this machine can do for the sandbox
	$(RUN) -m envs.sandbox.doctor

bench-generate: $(READY) ## tokens per second of our sampling loop against transformers' generate
	$(RUN) -m experiments.bench_generate

bench-prepare: $(READY) ## preparing a 25,000-row data set, and the second start on it
	$(RUN) -m experiments.bench_prepare

bench-judge: $(READY) ## tests per second and CPU per test of every way to judge
	$(RUN) -m experiments.bench_judge

clean: ## remove .venv, caches, benchmark output and reports; run folders stay
	rm -rf $(VENV) .pytest_cache .ruff_cache bench reports *.egg-info
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
