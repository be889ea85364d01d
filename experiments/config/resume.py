"""The configuration of a resumed run: its own, with overrides of the keys that may change.

Nothing heavy is imported, so that a mistake shows at once.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException
from yaml import YAMLError

from envs.command_line.config_parsing import did_you_mean
from experiments.config.composition import CONF, leaves, parse_overrides
from experiments.config.schema import RunConfig, parse, plain_values
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
    recorded = recorded_values(folder, f"resume={folder}")
    composed = OmegaConf.create(recorded)
    for override in parse_overrides(arguments):
        if override.is_sweep_override():
            raise UserError(
                f"resume={folder}: {override.input_line}: a run resumes with a single value"
            )
        _set(composed, recorded, override.key_or_group, override.value())
    config = parse(composed)
    check_same(recorded, asdict(config), f"resume={folder}")
    return config


def recorded_values(folder: Path, where: str) -> dict[str, Any]:
    """Return a run folder's configuration. Raises UserError, which begins with `where`."""
    file = folder / "config.yaml"
    if not file.is_file() or not (folder / "run.json").is_file():
        runs = sorted(place.parent.name for place in folder.glob("*/run.json"))
        inside = f"{len(runs)} are in it, such as {runs[-1]}" if runs else ""
        raise UserError(
            f"{where}: not a run folder; {inside or 'run folders are in `outputs/NAME/`'}"
        )
    try:
        return plain_values(OmegaConf.load(file))
    except (OSError, ValueError, AssertionError, YAMLError, OmegaConfBaseException) as error:
        reason = " ".join(str(error).split("\n")[0].split()) or "no keys in it"
        raise UserError(f"{where}: its config.yaml cannot be read: {reason}") from error


def check_same(before: dict[str, Any], now: dict[str, Any], where: str) -> None:
    """Raise UserError, which names the keys, if `now` would be another run than `before`."""
    changes = [f"{key}={new} (was {old})" for key, old, new in _differing(before, now)]
    if changes:
        may = ", ".join(key.rstrip(".") for key in MAY_CHANGE)
        raise UserError(
            f"{where}: {', '.join(changes)} would be another run; only {may} may change (from= "
            "in place of resume= begins a new run)"
        )
    if now["steps"] != before["steps"] and now["train"]["schedule"] != "constant":
        raise UserError(
            f"{where}: steps={now['steps']} (was {before['steps']}) under train.schedule="
            f"{now['train']['schedule']}: the learning rates so far depended on the old value"
        )


def is_finished(folder: Path, config: RunConfig) -> bool:
    """Return whether a run folder is finished under this configuration."""
    info = json.loads((folder / "run.json").read_text())
    recorded = OmegaConf.load(folder / "config.yaml")
    return info["status"] == "finished" and recorded.steps >= config.steps


def _set(composed: DictConfig, recorded: dict[str, Any], key: str, value: Any) -> None:
    """Override a key, or take another choice of a group. Raises UserError if there is none."""
    names = value if isinstance(value, list) else [value]  # logger=[wandb,tensorboard]
    choices = [CONF / key / f"{name}.yaml" for name in names]
    if "." not in key and choices and all(choice.is_file() for choice in choices):
        composed[key] = OmegaConf.merge(*map(OmegaConf.load, choices))
        return
    known = list(leaves(recorded))
    if (CONF / key).is_dir():
        available = sorted(choice.stem for choice in (CONF / key).glob("*.yaml"))
        near = did_you_mean(str(value), available)
        raise UserError(f"{key}={value}: {near}choose one of {', '.join(available)}")
    if key not in known:
        raise UserError(f"unknown key {key!r}; {did_you_mean(key, known)}this run does not have it")
    OmegaConf.update(composed, key, value, merge=False)


def _differing(before: dict[str, Any], now: dict[str, Any]) -> Iterator[tuple[str, Any, Any]]:
    """Yield (key, old value, new value) of changed keys that may not change.

    A key that the run's version did not have yet, outside `algo`, had its class's default.
    """
    old, new = dict(flat(before)), dict(flat(now))
    defaults = asdict(RunConfig(algo=None)) | {"algo": {}}
    old = {key: value for key, value in flat(defaults) if key in new} | old
    for key in sorted(old.keys() | new.keys()):
        free = any(key == may or (may[-1] == "." and key.startswith(may)) for may in MAY_CHANGE)
        if old.get(key) != new.get(key) and not free:
            yield key, old.get(key), new.get(key)


def flat(values: dict[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the dotted keys of a nested configuration with their values, lists for tuples."""
    for key, value in values.items():
        if isinstance(value, dict) and value:
            yield from flat(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", list(value) if isinstance(value, tuple) else value
