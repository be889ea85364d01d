"""The configuration of a resumed run: its own, with overrides of the keys that may change."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException
from yaml import YAMLError

from envs.command_line import CONF, did_you_mean, leaves
from envs.composition import parse_overrides
from experiments.config.checks import parse
from experiments.config.composition import compose
from experiments.config.schema import RunConfig, plain_values
from experiments.errors import UserError

# Keys that may change on resume: they affect training by rounding at most. A final dot stands for
# all keys below.
MAY_CHANGE = (
    "steps",
    "tuned",
    "output_dir",
    "logger.",
    "runtime.",
    "sandbox.",
    "eval.every",
    "eval.show",
    "engine.batch_size",
    "model.threads",
    "model.checkpoint_activations",
    "train.micro_batch",
    "train.micro_tokens",
    "train.checkpoint_every",
    "train.keep_checkpoints",
    "train.keep_best",
)


def resumed_config(folder: Path, arguments: Sequence[str]) -> RunConfig:
    """Return the run's configuration with overrides. Raises UserError if one may not change."""
    where = f"resume={folder}"
    recorded = recorded_values(folder, where)
    composed = OmegaConf.create(recorded)
    known = dict(leaves(recorded))
    named = {key: each.get("name") for key, each in recorded.items() if isinstance(each, dict)}
    try:
        for override in parse_overrides(arguments):
            line, key, value = override.input_line or "", override.key_or_group, override.value()
            if override.is_sweep_override():
                raise ValueError(f"{where}: {line}: a run resumes with a single value")
            if (CONF / key).is_dir() and may_change(f"{key}."):
                composed[key] = compose([line])[key]
            elif value == named.get(key):
                continue
            elif (CONF / key).is_dir() or isinstance(recorded.get(key), dict):
                raise ValueError(f"{where}: {line} would be another run; {key}.KEY=VALUE sets keys")
            elif key not in known:
                near = did_you_mean(key, list(known))
                raise ValueError(f"unknown key {key!r}; {near}this run does not have it")
            else:
                OmegaConf.update(composed, key, value, merge=False)
    except ValueError as error:
        raise UserError(str(error)) from error
    config = parse(composed)
    check_same(recorded, asdict(config), where)
    return config


def recorded_values(folder: Path, where: str) -> dict[str, Any]:
    """Return a run folder's configuration. Raises UserError, which begins with `where`."""
    if not (folder / "run.json").is_file():
        raise UserError(f"{where}: no run folder; run folders are in outputs/NAME/")
    try:
        return plain_values(OmegaConf.load(folder / "config.yaml"))
    except (OSError, ValueError, AssertionError, YAMLError, OmegaConfBaseException) as error:
        reason = " ".join(str(error).split("\n")[0].split()) or "no keys in it"
        raise UserError(f"{where}: its config.yaml cannot be read: {reason}") from error


def check_same(before: dict[str, Any], now: dict[str, Any], where: str) -> None:
    """Raise UserError, which names the keys, if `now` would be another run than `before`."""
    old, new = dict(leaves(before)), dict(leaves(now))
    changes = [
        f"{key}={new.get(key)} (was {old.get(key)})"
        for key in sorted(old.keys() | new.keys())
        if old.get(key) != new.get(key) and not may_change(key)
    ]
    if changes:
        raise UserError(
            f"{where}: {', '.join(changes)} would be another run; only "
            f"{', '.join(key.rstrip('.') for key in MAY_CHANGE)} may change (--config-path "
            f"{where.partition('=')[2]} begins a new run)"
        )
    if now["steps"] != before["steps"] and now["train"]["schedule"] != "constant":
        raise UserError(
            f"{where}: steps={now['steps']} (was {before['steps']}) under train.schedule="
            f"{now['train']['schedule']}: the learning rates so far depended on the old value"
        )


def may_change(key: str) -> bool:
    """Whether a dotted key may have another value in a run that is resumed."""
    return any(key == may or (may[-1] == "." and key.startswith(may)) for may in MAY_CHANGE)


def is_finished(folder: Path, config: RunConfig) -> bool:
    """Whether a run folder is finished under this configuration."""
    info = json.loads((folder / "run.json").read_text())
    recorded = OmegaConf.load(folder / "config.yaml")
    return info.get("status") == "finished" and recorded.steps >= config.steps
