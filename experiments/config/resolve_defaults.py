"""Resolve what a configuration leaves to the device, before anything is recorded."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from experiments.config.dependencies import VLLM_RELEASE, vllm_version
from experiments.config.model_folder import locate
from experiments.config.schema import ModelConfig, RunConfig
from experiments.gpus import VISIBLE

if TYPE_CHECKING:
    from algorithms.base import Needs

# device → (task.max_prompt_tokens, task.max_response_tokens)
TOKEN_LIMITS = {"cuda": (2048, 1024), "cpu": (1024, 256)}
CPU_FACTS = Path("/proc/cpuinfo")  # of Linux; elsewhere a CPU computes in float32
BFLOAT16_FLAGS = frozenset({"avx512_bf16", "amx_bf16"})  # instructions that multiply bfloat16
FEW_PROBLEMS = 20  # of an evaluation, below which a run says so
SHORTEST_PROGRAM = 16  # tokens of a response with a program in a code block, roughly


def resolve_defaults(config: RunConfig, device: str) -> RunConfig:
    """Return the configuration with its open values set for `device`, e.g. "cuda:1".

    Each k of pass@k above the number of samples is dropped.
    """
    kind = device.split(":")[0]
    prompt, response = TOKEN_LIMITS[kind]
    task, model, engine = config.task, config.model, config.engine
    if task.max_prompt_tokens is None:
        task = replace(task, max_prompt_tokens=prompt)
    if task.max_response_tokens is None:
        task = replace(task, max_response_tokens=response)
    if model.dtype == "auto":
        model = replace(model, dtype=default_dtype(device))
    if engine.name == "auto":
        engine = replace(
            engine, name="vllm" if kind == "cuda" and vllm_version() == VLLM_RELEASE else "hf"
        )
    evaluation = replace(config.eval, k=[k for k in config.eval.k if k <= config.eval.samples])
    return replace(config, task=task, model=model, engine=engine, eval=evaluation)


def default_dtype(device: str) -> Literal["bfloat16", "float32"]:
    """Return the dtype that model.dtype=auto stands for on `device`.

    A CPU without instructions for bfloat16 is slower in it than in float32.
    """
    if device.startswith("cuda"):
        return "bfloat16"
    facts = CPU_FACTS.read_text() if CPU_FACTS.exists() else ""
    flags = next((line for line in facts.splitlines() if line.startswith("flags")), "")
    return "bfloat16" if BFLOAT16_FLAGS & set(flags.split()) else "float32"


def summary(config: RunConfig, device: str) -> str:
    """Return one line on the model, engine, limits and staleness of a run."""
    return (
        f"on {device}: model={config.model.name} ({_source(config.model)}, {config.model.dtype}), "
        f"engine={config.engine.name}, prompts of up to {config.task.max_prompt_tokens} tokens, "
        f"responses of up to {config.task.max_response_tokens}; each can be overridden"
        f"{_staleness(config)}{_critic_only_warning(config)}"
    )


def _source(model: ModelConfig) -> str:
    """Return where the model is from: its path, and the file that stands in for it."""
    used = locate(model.path, model.fallback)
    return f"{model.path}; from {used}" if model.fallback and used != model.path else model.path


def _staleness(config: RunConfig) -> str:
    """Return what makes responses stale and what corrects it, else an empty text."""
    train = config.train
    keys = {"lag": 0, "sync_every": 1, "correction": "none"}
    changed = [
        f"train.{key}={value}" for key in keys if (value := getattr(train, key)) != keys[key]
    ]
    return f"; {', '.join(changed)}" if changed else ""


def _critic_only_warning(config: RunConfig) -> str:
    """Return a warning if the critic's warm-up takes the whole run, else an empty text."""
    warmup = getattr(config.algo, "critic_warmup", 0)
    if not 0 < config.steps <= warmup:
        return ""
    return (
        f"; algo.critic_warmup={warmup} of steps={config.steps}: only the critic is trained "
        "and the policy never changes; lower it"
    )


def final_split_warning(config: RunConfig, study: str | None) -> str | None:
    """Warn about an evaluation on the test split that is not a study's final one.

    `study`: the one whose runner started the run; None: it was started by hand.
    """
    if config.eval.split != "test" or (config.eval.final and study):
        return None
    if config.eval.final:
        return (
            "eval.final=true: it was set by hand, and only a study's runner may (make study, with "
            "final: true in the study's YAML); this is not a study's final evaluation on the test "
            "split"
        )
    return (
        "eval.split=test: the test split is for a study's final evaluation; defaults and designs "
        "are chosen on eval.split=choose"
    )


def few_problems_note(config: RunConfig, problems: int) -> str | None:
    """Say that an evaluation is on fewer than FEW_PROBLEMS `problems`."""
    if problems >= FEW_PROBLEMS:
        return None
    split = config.eval.split
    generated = f"; task.{split}_problems=N makes more" * bool(config.task.make)
    more = generated or "; more rows, or a folder with a file for each split, give more"
    counted = f"{problems} problem{'s' * (problems != 1)}"
    return f"NOTE: eval.split={split} has {counted}, and scores on so few say little{more}"


def setting_warnings(config: RunConfig) -> list[str]:
    """Warn, before anything is loaded, of settings that undo each other or show little."""
    evaluation, longest, found = config.eval, config.task.max_response_tokens, []
    train = config.train
    if train.offline_share and train.temperature != 1:
        found.append(
            f"train.temperature={train.temperature:g} with train.offline_share="
            f"{train.offline_share:g}: the data set's programs are learnt as if sampled at this "
            "temperature, so samples at it become as varied as the data set; "
            "train.temperature=1 learns them as written"
        )
    if evaluation.split == "train" and config.steps:
        found.append(
            "eval.split=train: the evaluations are on the problems that are trained on, so they do "
            "not show how many others the model solves; eval.split=choose is for that"
        )
    if not evaluation.temperature and evaluation.samples > 1:
        found.append(
            f"eval.temperature=0: all eval.samples={evaluation.samples} responses to a problem are "
            "the same, so pass@k is pass@1 for every k; set eval.samples=1 eval.k=[1], or a "
            "temperature above 0"
        )
    if longest is not None and longest < SHORTEST_PROGRAM:
        found.append(
            f"task.max_response_tokens={longest}: hardly any program is so short, so responses are "
            "cut off and fail; raise it"
        )
    return found


def no_gpu_warning(config: RunConfig, device: str) -> str | None:
    """Warn that a run for which GPUs are named is on the CPU; `device`: where it is."""
    listed = os.environ.get(VISIBLE)
    if config.model.device != "auto" or device != "cpu" or not listed or listed == "-1":
        return None
    return (
        f"WARNING: {VISIBLE}={listed}, but torch finds no such GPU, so this run is on the CPU; "
        "model.device=cuda would refuse it"
    )


def missing_share_warning(config: RunConfig, needs: Needs, problems: int) -> str | None:
    """Warn about an objective made for offline or replayed rows whose batches have none.

    `problems`: the number of training problems; each is repeated once all have been used.
    """
    if config.replay.frozen or not needs.share:
        return None
    if getattr(config.train, needs.share):
        return _late_replay_warning(config, needs, problems)
    return (
        f"algo={config.algo.name} with train.{needs.share}=0: its batches lack the rows that it "
        "is designed to mix in, which makes it another objective; set a share"
    )


def _late_replay_warning(config: RunConfig, needs: Needs, problems: int) -> str | None:
    """Warn if no problem comes again before the last batch that replays."""
    last = min(config.steps, getattr(config.algo, "reincarnate_at", None) or config.steps)
    has_sources = config.replay.from_runs or config.replay.files
    first_pass = problems // config.train.prompts  # batches
    if needs.share != "replay_share" or has_sources or not 0 < last <= first_pass:
        return None
    if config.train.resample_zero_variance:  # further problems are taken, and come again sooner
        return None
    until = "" if last == config.steps else f", and replay ends after batch {last}"
    return (
        f"algo={config.algo.name}: none of the {problems} problems returns before batch "
        f"{first_pass + 1}{until}, so nothing is replayed; use fewer problems, or "
        "replay.from_runs"
    )


def describe_dropped(requested: RunConfig, resolved: RunConfig) -> str | None:
    """Return one line on the requested pass@k that were dropped; None if none were."""
    dropped = [k for k in requested.eval.k if k not in resolved.eval.k]
    if not dropped:
        return None
    listed = ", ".join(f"pass@{k}" for k in dropped)
    return f"left out: {listed}; more than eval.samples={requested.eval.samples} samples are needed"
