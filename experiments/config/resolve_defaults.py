"""Resolve what a configuration leaves to the device, before anything is recorded."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Literal

from experiments.config.preflight import VLLM_RELEASE, vllm_version
from experiments.config.schema import RunConfig

# device → (task.max_prompt_tokens, task.max_response_tokens)
TOKEN_LIMITS = {"cuda": (2048, 1024), "cpu": (1024, 256)}
CPU_FACTS = Path("/proc/cpuinfo")  # of Linux; elsewhere a CPU computes in float32
BFLOAT16_FLAGS = frozenset({"avx512_bf16", "amx_bf16"})  # instructions that multiply bfloat16


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
        on_gpu = kind == "cuda" and vllm_version() == VLLM_RELEASE
        engine = replace(engine, name="vllm" if on_gpu else "hf")
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
    model, task, train = config.model, config.task, config.train
    return (
        f"on {device}: model={model.name} ({model.path}, {model.dtype}), "
        f"engine={config.engine.name}, prompts of up to {task.max_prompt_tokens} tokens, "
        f"responses of up to {task.max_response_tokens}, train.lag={train.lag}, "
        f"train.sync_every={train.sync_every}, train.correction={train.correction}"
    )


def missing_share_warning(config: RunConfig, share: str) -> str | None:
    """Warn about an objective that mixes in rows which its batches lack; `share`: of its needs."""
    if not share or config.replay.frozen or getattr(config.train, share):
        return None
    return (
        f"algo={config.algo.name} with train.{share}=0: its batches lack the rows that it is "
        "designed to mix in, which makes it another objective; set a share"
    )


def final_split_warning(config: RunConfig, study: str | None) -> str | None:
    """Warn about an evaluation on the test split that is not a study's final one.

    `study`: the one whose runner started the run; None: it was started by hand.
    """
    if config.eval.split != "test" or (config.eval.final and study):
        return None
    return (
        "eval.split=test: the test split is for a study's final evaluation, which its runner marks "
        "with eval.final=true; defaults and designs are chosen on eval.split=choose"
    )
