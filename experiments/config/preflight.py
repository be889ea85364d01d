"""Checks of files and of the machine before torch is imported: a fault costs seconds, not minutes.

Each is a cheap look at what the run will need. What passes here may still fail later, where the
same fault has the same message.
"""

from __future__ import annotations

import os
import shutil
import socket
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from concurrent.futures import TimeoutError as FutureTimeout
from pathlib import Path

from envs.hub_errors import explain_hub_error
from envs.sandbox.base import SandboxError
from envs.tasks.first_rows import check_first_rows
from experiments.config.model_folder import locate, weight_bytes
from experiments.config.schema import ModelConfig, RunConfig
from experiments.errors import UserError

CONNECT_S = 2.0
GPU_DEVICES = ("/dev/nvidiactl", "/dev/kfd", "/dev/dxg")  # NVIDIA, AMD, Windows' Linux
# of a checkpoint's bytes per byte of weights: float32 weights and two moments from 2-byte files
CHECKPOINT_FACTOR = 6
HUB = "huggingface.co"


def check_before_start(configs: Sequence[RunConfig]) -> None:
    """Raise UserError for the first fault of any job; equal parts are looked at once."""
    seen: set[str] = set()
    for config in configs:
        parts = (config.model, config.task, config.sandbox, config.runtime, config.output_dir)
        if (key := repr(parts)) in seen:
            continue
        seen.add(key)
        _check(config)


def _check(config: RunConfig) -> None:
    _check_device(config.model)
    try:
        check_first_rows(config.task)
    except (ValueError, OSError) as error:
        raise UserError(str(error)) from error
    size = weight_bytes(config.model.path)
    if size is None:
        _check_hub(config.model.path)
    elif config.steps:
        _check_disk(config, size)
    _check_sandbox(config)
    if config.runtime.name == "ray" and config.runtime.address:
        _check_ray(config.runtime.address)


def _check_device(model: ModelConfig) -> None:
    if not model.device.startswith("cuda"):
        return
    if not any(Path(device).exists() for device in GPU_DEVICES):
        raise UserError(
            f"model.device={model.device}: no GPU is visible here; use model.device=cpu"
        )


def _check_hub(name: str) -> None:
    """Raise UserError if neither the hub answers nor an earlier download is there.

    Behind a proxy, or with another endpoint, the download itself has to find out.
    """
    if _is_cached(locate(name)) or any(
        os.environ.get(key) for key in ("HTTPS_PROXY", "https_proxy", "HF_ENDPOINT")
    ):
        return
    if os.environ.get("HF_HUB_OFFLINE") not in ("1", "ON", "YES", "TRUE") and _answers(HUB, 443):
        return
    raise UserError(explain_hub_error(ConnectionError(), "model.path", name, "model") or "")


def _is_cached(name: str) -> bool:
    home = Path(os.environ.get("HF_HOME", "~/.cache/huggingface")).expanduser()
    hub = Path(os.environ.get("HF_HUB_CACHE", home / "hub"))
    snapshots = hub / f"models--{name.replace('/', '--')}" / "snapshots"
    return any(snapshots.glob("*/config.json"))


def _answers(host: str, port: int) -> bool:
    """Whether a connection opens within CONNECT_S, the look-up of the name included."""

    def connect() -> bool:
        try:
            socket.create_connection((host, port), timeout=CONNECT_S).close()
        except OSError:
            return False
        return True

    pool = ThreadPoolExecutor(1)
    try:
        return pool.submit(connect).result(timeout=2 * CONNECT_S)
    except FutureTimeout:  # a look-up has no time limit of its own
        return False
    finally:
        pool.shutdown(wait=False)


def _check_disk(config: RunConfig, size: int) -> None:
    """Raise UserError if the checkpoints that are kept would not fit."""
    free = shutil.disk_usage(config.output_dir).free
    kept = 1 + config.train.keep_checkpoints + config.train.keep_best
    needed = kept * CHECKPOINT_FACTOR * size
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
    if host and port.isdecimal() and not _answers(host, int(port)):
        raise UserError(
            f"runtime.address={address}: nothing answers there; `ray start --head` starts a "
            "cluster, and runtime.address=null runs without one"
        )
