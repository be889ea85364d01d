"""Whether peft is here: asked while a configuration is checked, before heavy imports."""

from __future__ import annotations

import importlib.util

from experiments.errors import UserError


def check_peft() -> None:
    """UserError that says what to install, where it is missing."""
    if importlib.util.find_spec("peft") is None:
        raise UserError("model.adapter=lora: peft is not installed; pip install -e '.[lora]'")
