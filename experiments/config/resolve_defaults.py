"""What the configuration leaves open is picked by the device, and what it cannot mean is dropped,
once, before anything is recorded."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from experiments.config.dependencies import VLLM_RELEASE, vllm_version
from experiments.config.schema import RunConfig

if TYPE_CHECKING:
    from algorithms.base import Needs

# device → (task.max_prompt_tokens, task.max_response_tokens, model.dtype)
DEVICE_DEFAULTS = {"cuda": (2048, 1024, "bfloat16"), "cpu": (1024, 256, "float32")}


def resolve_defaults(config: RunConfig, device: str) -> RunConfig:
    """The configuration with its open values filled in for `device`, e.g. "cuda:1".

    No k of pass@k stays above the number of samples.
    """
    kind = device.split(":")[0]
    prompt, response, dtype = DEVICE_DEFAULTS[kind]
    task, model, engine = config.task, config.model, config.engine
    if task.max_prompt_tokens is None:
        task = replace(task, max_prompt_tokens=prompt)
    if task.max_response_tokens is None:
        task = replace(task, max_response_tokens=response)
    if model.dtype == "auto":
        model = replace(model, dtype=dtype)
    if engine.name == "auto":
        engine = replace(
            engine, name="vllm" if kind == "cuda" and vllm_version() == VLLM_RELEASE else "hf"
        )
    measured = replace(config.eval, k=[k for k in config.eval.k if k <= config.eval.samples])
    return replace(config, task=task, model=model, engine=engine, eval=measured)


def default_dtype(device: str) -> str:
    """What model.dtype=auto is there."""
    return DEVICE_DEFAULTS[device.split(":")[0]][2]


def summary(config: RunConfig, device: str) -> str:
    """What a run goes on with, picked or given."""
    return (
        f"on {device}: model={config.model.name} ({config.model.path}, {config.model.dtype}), "
        f"engine={config.engine.name}, prompts of up to {config.task.max_prompt_tokens} tokens, "
        f"responses of up to {config.task.max_response_tokens}; each can be overridden"
    ) + _critic_alone(config)


def _critic_alone(config: RunConfig) -> str:
    """Said of a run whose policy never learns."""
    warmup = getattr(config.algo, "critic_warmup", 0)
    if not 0 < config.steps <= warmup:
        return ""
    return (
        f"; algo.critic_warmup={warmup} of steps={config.steps}: the critic learns alone in all of "
        "them, the policy stays as it is; lower it"
    )


def missing_share_warning(config: RunConfig, needs: Needs, problems: int) -> str | None:
    """Said of an objective that is made to mix rows in where there are none.

    `problems`: to train on; a problem comes again once all of them have come.
    """
    if config.replay.frozen or not needs.share:
        return None
    if getattr(config.train, needs.share):
        return _replayed_too_late(config, needs, problems)
    return (
        f"algo={config.algo.name} with train.{needs.share}=0: its batches have nothing of what it "
        "is made to mix in, so that it is another objective; give a share"
    )


def _replayed_too_late(config: RunConfig, needs: Needs, problems: int) -> str | None:
    last = min(config.steps, needs.replay_until or config.steps)
    others, again = config.replay.from_runs or config.replay.files, problems // config.train.prompts
    if needs.share != "replay_share" or others or not 0 < last <= again:
        return None
    if config.train.resample_zero_variance:  # further problems are taken, and come again sooner
        return None
    until = "" if last == config.steps else f" and the last that replays is number {last}"
    return (
        f"algo={config.algo.name}: no problem of {problems} comes again before batch {again + 1}"
        f"{until}, so that nothing is replayed; take fewer problems, or replay.from_runs"
    )


def describe_dropped(given: RunConfig, picked: RunConfig) -> str | None:
    """What was left out of the configuration as it was given, if anything was."""
    gone = [k for k in given.eval.k if k not in picked.eval.k]
    if not gone:
        return None
    listed = ", ".join(f"pass@{k}" for k in gone)
    return f"left out: {listed}, which eval.samples={given.eval.samples} cannot tell"
