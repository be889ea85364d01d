"""From a command line to the checked configurations of its jobs; what is wrong is one line.

Nothing heavy is imported here: a mistake shows at once.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import hydra
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override
from hydra.errors import HydraException, MissingConfigException, OverrideParseException
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from envs.config_parsing import did_you_mean
from experiments.config.class_defaults import CONF, defaults_by_choice, register
from experiments.config.schema import RunConfig, parse
from experiments.errors import UserError

UNKNOWN = "Could not override '"  # how Hydra's message on an unknown key begins


def jobs_of(arguments: Sequence[str]) -> list[list[str]]:
    """The overrides of each job: one, or a sweep's combinations. Raises UserError."""
    overrides = parsed([argument for argument in arguments if not argument.startswith("-")])
    if not is_sweep(arguments):
        return [[override.input_line for override in overrides]]
    from hydra._internal.core_plugins.basic_sweeper import BasicSweeper

    try:
        return BasicSweeper.split_arguments(overrides, None)[0]
    except HydraException as error:
        raise UserError(_first_words(error)) from error


def is_sweep(arguments: Sequence[str]) -> bool:
    return any(argument in ("-m", "--multirun") for argument in arguments)


def config_of(overrides: Sequence[str]) -> RunConfig:
    """The checked configuration of one job. Raises UserError."""
    try:
        return parse(compose(overrides))
    except MissingConfigException as error:
        group, _, name = error.missing_cfg_file.rpartition("/")
        there = ", ".join(error.options or ())
        told = f"{group}={name}: no such choice; {group} is one of {there}"
        if group == "hydra/launcher":
            told += "; `pip install -e '.[launch]'` brings others"
        raise UserError(told) from error
    except (HydraException, OmegaConfBaseException) as error:
        text = str(error)
        if text.startswith(UNKNOWN):
            raise UserError(_unknown(text.split("'")[1], overrides)) from error
        raise UserError(_first_words(error)) from error


def compose(overrides: Sequence[str], folder: Path = CONF) -> DictConfig:
    """The configuration of one job as Hydra composes it from `folder`, unchecked."""
    register()
    with hydra.initialize_config_dir(str(folder), version_base="1.3"):
        return hydra.compose("config", overrides=list(overrides))


def parsed(arguments: Sequence[str]) -> list[Override]:
    parser, overrides = OverridesParser.create(), []
    for i, argument in enumerate(arguments):
        try:
            overrides += parser.parse_overrides([argument])
        except OverrideParseException as error:
            if "=" in argument:
                key, _, value = argument.partition("=")
                reason = "a value with such characters stands in quotes"
            else:  # the shell cut a value at a blank
                key, _, value = (arguments[i - 1] if i else "KEY=VALUE").partition("=")
                value += f" {argument}" if i else ""
                reason = "write key=value; a value with blanks stands in quotes"
            value = value.replace("\\", "\\\\").replace('"', '\\"')
            quoted = shlex.quote(f'{key}="{value}"')
            raise UserError(f"{argument!r}: {reason}, e.g. {quoted}") from error
    return overrides


def _first_words(error: Exception) -> str:
    """Hydra spreads its messages over lines and names its own search path."""
    text = " ".join(str(error).split("Config search path")[0].split())
    return text.removeprefix("In 'config': ")


def _unknown(key: str, overrides: Sequence[str]) -> str:
    """What to say of a key that this choice of algorithm, task, … does not have."""
    choices = [o for o in overrides if (CONF / o.partition("=")[0]).is_dir()]
    known = list(leaves(OmegaConf.to_container(compose(choices))))
    group, _, rest = key.partition(".")
    elsewhere = [f"{group}={name}" for name, keys in _options(group) if rest in keys]
    if elsewhere and key not in known:
        return f"unknown key {key!r} with these choices; it belongs to {', '.join(elsewhere)}"
    return f"unknown key {key!r}; {did_you_mean(key, known)}`python run.py --help` lists the keys"


def leaves(values: dict[str, Any], prefix: str = "") -> Iterator[str]:
    """The dotted keys of a nested configuration that hold a value."""
    for key, value in values.items():
        if isinstance(value, dict) and value:
            yield from leaves(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}"


def _options(group: str) -> Iterator[tuple[str, set[str]]]:
    """Each choice of a group, with its keys."""
    defaults = dict(defaults_by_choice(group))
    for file in sorted((CONF / group).glob("*.yaml")):
        values = OmegaConf.to_container(OmegaConf.load(file))
        own = values.get(group, values)
        yield file.stem, set(leaves(defaults.get(file.stem, {}) | own))
