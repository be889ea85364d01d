"""Checks of files and of the machine before torch is imported: a fault costs seconds, not minutes.

Each is a cheap look at what the run will need. What passes here may still fail later, where the
same fault has the same message.
"""

from __future__ import annotations

import glob
import os
import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path

from envs.cache_folder import cache_root
from envs.hub_errors import explain_hub_error
from envs.sandbox.base import SandboxError
from envs.tasks.prompts import FeedbackTemplate, PromptTemplate
from experiments.config.dependencies import check_peft, check_ray, check_vllm, ray_fault
from experiments.config.model_folder import (
    GGUF,
    answers,
    check_tokenizer,
    locate,
    may_download,
    weight_bytes,
)
from experiments.config.schema import ModelConfig, RunConfig
from experiments.errors import UserError
from experiments.gpus import VISIBLE, visible_gpus

GPU_DEVICES = ("/dev/nvidiactl", "/dev/kfd", "/dev/dxg")  # NVIDIA, AMD, Windows' Linux
# of a checkpoint's bytes per byte of weights: float32 weights and two moments from 2-byte files
CHECKPOINT_FACTOR = 6
CONVERTED_FACTOR = 4  # of a .gguf file, whose weights count as float32
ADAPTER_FACTOR = 1.5  # with LoRA: the merged weights, and the adapter with its moments


def check_before_start(configs: Sequence[RunConfig], starts: bool = True) -> list[str]:
    """Raise UserError for the first fault of any job; equal parts are looked at once.

    `starts`: the jobs start on this machine, whose disk is then looked at.
    Returns hints on what is no fault, but is probably not meant.
    """
    seen: set[str] = set()
    hints = dict[str, None]()
    for config in configs:
        parts = (config.model, config.task, config.sandbox, config.runtime, config.output_dir)
        if (key := repr(parts)) in seen:
            continue
        seen.add(key)
        _check(config, starts)
    return list(hints)


def make_output_folder(folder: str) -> None:
    """Make a folder that can be written to. Raises UserError."""
    _make_writable(Path(folder), f"output_dir={folder}", "choose a writable folder")


def _make_writable(folder: Path, name: str, cure: str) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        tempfile.TemporaryFile(dir=folder).close()  # a folder may be there and read-only
    except OSError as error:
        raise UserError(f"{name}: {error.strerror}; {cure}") from error


def _check(config: RunConfig, starts: bool) -> None:
    if config.engine.name == "vllm":
        check_vllm()
    if config.model.adapter != "none":
        check_peft()
    if config.runtime.name == "ray":
        check_ray()
    _check_device(config.model)
    cache = cache_root()
    _make_writable(cache, f"the cache folder {cache}", "set SPO_BENCH_CACHE to a writable folder")
    try:
        if config.task.prompt:
            PromptTemplate(Path(config.task.prompt), "task.prompt")
        if config.task.feedback_prompt:
            FeedbackTemplate(Path(config.task.feedback_prompt), "task.feedback_prompt")
    except (ValueError, OSError) as error:
        raise UserError(str(error)) from error
    size = weight_bytes(config.model.path, config.model.fallback)
    check_tokenizer(config.model.path, config.task.chat, config.model.fallback)
    if size is None and not may_download(config.model.path):
        unreachable = ConnectionError()
        raise UserError(
            explain_hub_error(unreachable, "model.path", config.model.path, "model") or ""
        )
    if size is not None:
        _check_room_to_convert(config.model, size)
        if config.steps and starts:
            _check_disk(config, size)
    _check_sandbox(config)
    if config.runtime.name == "ray" and config.runtime.address:
        _check_ray(config.runtime.address)


def _check_device(model: ModelConfig) -> None:
    if not model.device.startswith("cuda"):
        return
    gpus, listed = visible_gpus(), os.environ.get(VISIBLE)
    named = "" if listed is None else f" ({VISIBLE}={listed})"
    if not any(Path(device).exists() for device in GPU_DEVICES) or (not gpus and named):
        raise UserError(
            f"model.device={model.device}: no GPU is visible here{named}; use model.device=cpu"
        )
    number = int(model.device.partition(":")[2] or 0)
    if gpus and number >= len(gpus):
        raise UserError(
            f"model.device={model.device}: the last GPU visible here is cuda:{len(gpus) - 1}{named}"
        )


def _check_room_to_convert(model: ModelConfig, size: int) -> None:
    """Raise UserError if a .gguf file is to be converted and its weights would not fit."""
    source, cache = Path(locate(model.path, model.fallback)), cache_root()
    known = (cache / "models").glob(f"{glob.escape(source.stem)}-*/config.json")
    if source.suffix != GGUF or any(".tmp" not in file.parent.suffix for file in known):
        return  # another file's of the same name may be taken for it
    free = shutil.disk_usage(cache).free
    if free < size:
        raise UserError(
            f"model.path={model.path}: {free / 1e9:.1f} GB are free in the cache folder {cache}, "
            f"and converting it takes about {size / 1e9:.1f} GB; free some, or set SPO_BENCH_CACHE "
            "to a folder elsewhere"
        )


def _check_disk(config: RunConfig, size: int) -> None:
    """Raise UserError if the checkpoints that are kept would not fit."""
    free = shutil.disk_usage(config.output_dir).free
    kept = 1 + config.train.keep_checkpoints + config.train.keep_best
    converted = locate(config.model.path, config.model.fallback).endswith(GGUF)
    factor: float = ADAPTER_FACTOR
    if config.model.adapter == "none":
        factor = CONVERTED_FACTOR if converted else CHECKPOINT_FACTOR
    needed = kept * factor * size
    if free < needed:
        raise UserError(
            f"output_dir={config.output_dir}: {free / 1e9:.1f} GB are free, and {kept} checkpoints "
            f"take about {needed / 1e9:.1f} GB; free some, choose another output_dir, or lower "
            f"train.keep_checkpoints={config.train.keep_checkpoints}"
        )


def _check_sandbox(config: RunConfig) -> None:
    if config.task.environment or config.runtime.name == "ray":
        return  # no programs, or sandboxes on other nodes
    if config.sandbox.kind == "docker":
        from envs.sandbox.docker import unavailable

        if reason := unavailable():
            raise UserError(reason)
    elif config.sandbox.kind == "embedded":
        from envs.sandbox.embedded import strongest_form

        try:
            strongest_form(i_accept_no_isolation=config.sandbox.i_accept_no_isolation)
        except SandboxError as error:
            raise UserError(str(error)) from error


def _check_ray(address: str) -> None:
    host, _, port = address.rpartition(":")
    if not host or not port.isdecimal():
        return
    reason = ray_fault(address) if answers(host, int(port)) else "nothing answers there"
    if reason:
        raise UserError(
            f"runtime.address={address}: {reason}; `ray start --head` starts a cluster, and "
            "runtime.address=null runs without one"
        )
