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

from envs.command_line import did_you_mean
from envs.import_by_name import CANNOT_IMPORT
from experiments.config.composition import CONF, check_dashes, leaves, parse_overrides
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


def named_folder(word: str) -> Path:
    """Return the folder of `resume=FOLDER` or `from=FOLDER`. Raises UserError if it is empty."""
    key, _, folder = word.partition("=")
    if not folder:
        raise UserError(f"{key}= is empty; give a run folder, such as {key}=outputs/mini/RUN")
    return Path(folder)


def resumed_config(folder: Path, arguments: Sequence[str]) -> RunConfig:
    """Return the run's configuration with overrides. Raises UserError if one may not change."""
    recorded = recorded_values(folder, where := f"resume={folder}")
    composed = OmegaConf.create(recorded)
    try:
        parse(composed)
    except UserError as error:
        if CANNOT_IMPORT in str(error):  # whatever the run is
            raise
        raise UserError(
            f"{where}: this version cannot read its config.yaml: {error} (from= in place of "
            "resume= begins a new run)"
        ) from error
    check_dashes(arguments)
    if flags := [argument for argument in arguments if argument.startswith("-")]:
        raise UserError(f"{where}: {flags[0]}: a run resumes with key=value alone")
    for override in parse_overrides(arguments):
        if override.is_sweep_override():
            raise UserError(f"{where}: {override.input_line}: a run resumes with a single value")
        _set(composed, recorded, override.key_or_group, override.value(), where)
    config = parse(composed)
    check_same(recorded, asdict(config), where)
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
        if not isinstance(json.loads((folder / "run.json").read_text()), dict):
            raise ValueError("no keys in it")
    except (OSError, ValueError) as error:
        raise UserError(f"{where}: its run.json cannot be read: {error}") from error
    try:
        return plain_values(OmegaConf.load(file))
    except (OSError, ValueError, AssertionError, YAMLError, OmegaConfBaseException) as error:
        reason = " ".join(str(error).split("\n")[0].split()) or "no keys in it"
        raise UserError(f"{where}: its config.yaml cannot be read: {reason}") from error


def check_same(before: dict[str, Any], now: dict[str, Any], where: str) -> None:
    """Raise UserError, which names the keys, if `now` would be another run than `before`."""
    changes = [f"{key}={new} (was {old})" for key, old, new in _differing(before, now)]
    if changes:
        raise _another_run(changes, where)
    if now["steps"] != before["steps"] and now["train"]["schedule"] != "constant":
        raise UserError(
            f"{where}: steps={now['steps']} (was {before['steps']}) under train.schedule="
            f"{now['train']['schedule']}: the learning rates so far depended on the old value"
        )


def _another_run(changes: Sequence[str], where: str) -> UserError:
    may = ", ".join(key.rstrip(".") for key in MAY_CHANGE)
    return UserError(
        f"{where}: {', '.join(changes)} would be another run; only {may} may change (from= "
        "in place of resume= begins a new run)"
    )


def is_finished(folder: Path, config: RunConfig) -> bool:
    """Return whether a run folder is finished under this configuration."""
    info = json.loads((folder / "run.json").read_text())
    recorded = OmegaConf.load(folder / "config.yaml")
    return info.get("status") == "finished" and recorded.steps >= config.steps


def _set(composed: DictConfig, recorded: dict[str, Any], key: str, value: Any, where: str) -> None:
    """Override a key, or take another choice of a group. Raises UserError if there is none."""
    names = value if isinstance(value, list) else [value]  # logger=[wandb,tensorboard]
    choices = [CONF / key / f"{name}.yaml" for name in names]
    if "." not in key and choices and all(choice.is_file() for choice in choices):
        was = recorded.get(key, {}).get("name", "none")
        if may_change(f"{key}."):
            composed[key] = OmegaConf.merge(*map(OmegaConf.load, choices))
        elif was != value:
            raise _another_run([f"{key}={value} (was {was})"], where)
        return
    known = list(leaves(recorded))
    if (CONF / key).is_dir():
        available = sorted(choice.stem for choice in (CONF / key).glob("*.yaml"))
        near = did_you_mean(str(value), available)
        raise UserError(f"{key}={value}: {near}choose one of {', '.join(available)}")
    if isinstance(recorded.get(key), dict):
        raise UserError(f"{key}={value}; it has keys of its own, {key}.KEY=VALUE")
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
        if old.get(key) != new.get(key) and not may_change(key):
            yield key, old.get(key), new.get(key)


def may_change(key: str) -> bool:
    """Whether a dotted key may have another value in a run that is resumed."""
    return any(key == may or (may[-1] == "." and key.startswith(may)) for may in MAY_CHANGE)


def flat(values: dict[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the dotted keys of a nested configuration with their values, lists for tuples."""
    for key, value in values.items():
        if isinstance(value, dict) and value:
            yield from flat(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", list(value) if isinstance(value, tuple) else value
