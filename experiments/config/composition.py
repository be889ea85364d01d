"""Compose and check the configurations of a command line's jobs; each mistake is one line.

Nothing heavy is imported, so that a mistake shows at once.
"""

from __future__ import annotations

import re
import shlex
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import hydra
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override
from hydra.errors import HydraException, MissingConfigException, OverrideParseException
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from envs.command_line import did_you_mean
from experiments.config.class_defaults import CONF, defaults_by_choice, register
from experiments.config.schema import RunConfig, parse, plain_values
from experiments.errors import UserError

Item = TypeVar("Item")

SEVERAL = ("experiment", "logger")  # choices of which a run may have several
UNKNOWN = "Could not override '"  # how Hydra's message on an unknown key begins
SILENCE_S = 3.0  # after which `counted` says how far it is
FEW = 2  # items that are too few to count
NO_KEYS = "Error merging override"  # and that on a list for a section
NOT_CONVERTED = "could not be converted"  # in its cause, if the value is of another type
FLAGS = (  # that Hydra or this project has; everything else is key=value
    *("-h", "--help", "--hydra-help", "--version", "-c", "--cfg", "-p", "--package", "--resolve"),
    *("-r", "--run", "-m", "--multirun", "-i", "--info", "-sc", "--shell-completion"),
    *("-cp", "--config-path", "-cn", "--config-name", "-cd", "--config-dir"),
    "--experimental-rerun",
)


def jobs_of(arguments: Sequence[str]) -> list[list[str]]:
    """Return the overrides of each job, several in a sweep. Raises UserError."""
    check_dashes(arguments)
    overrides = parse_overrides(
        [argument for argument in arguments if not argument.startswith("-")]
    )
    for override in overrides:
        _check_single(override, is_sweep(arguments))
    if not is_sweep(arguments):
        return [[override.input_line or "" for override in overrides]]
    from hydra._internal.core_plugins.basic_sweeper import BasicSweeper

    try:
        return BasicSweeper.split_arguments(overrides, None)[0]
    except HydraException as error:
        raise UserError(_on_one_line(error)) from error


def check_dashes(arguments: Sequence[str]) -> None:
    """Raise UserError for a key with dashes, as other programs take it."""
    for argument in arguments:
        if argument.startswith("-") and argument.partition("=")[0] not in FLAGS:
            key, _, value = argument.lstrip("-").partition("=")
            near = did_you_mean(argument.partition("=")[0], FLAGS)
            write = f"keys have no dash; write {key}={value or 'VALUE'}"
            raise UserError(f"{argument!r}: {near}{write}")


def _check_single(override: Override, sweep: bool) -> None:
    """Raise UserError for several values where one is taken."""
    line, key = override.input_line or "", override.key_or_group
    if override.is_sweep_override():
        if not sweep:
            raise UserError(f"{line}: several values are a sweep: python run.py -m {line}")
        return
    value = override.value()
    if not (CONF / key).is_dir():
        return
    if override.is_add() and not override.is_force_add():
        raise UserError(f"{line}: {key} is there already; write {line.removeprefix('+')}")
    several = isinstance(value, list) and key in SEVERAL
    keys_of_section = isinstance(value, dict) and value and key != "experiment"
    if isinstance(value, list) and value and not several:
        raise UserError(
            f"{line}: one {key} for a run; -m {key}={','.join(map(str, value))} runs each"
        )
    if not (isinstance(value, str) or several or keys_of_section):
        raise UserError(f"{line}: no such choice; {key} is one of {', '.join(_choices(key))}")


def _choices(group: str) -> list[str]:
    return sorted(file.stem for file in (CONF / group).glob("*.yaml"))


def is_sweep(arguments: Sequence[str]) -> bool:
    """Return whether the command line asks for several jobs."""
    return any(argument in ("-m", "--multirun") for argument in arguments)


def config_of(overrides: Sequence[str]) -> RunConfig:
    """Return the checked configuration of one job. Raises UserError."""
    with errors_on_one_line(overrides):
        return parse(compose(overrides))


@contextmanager
def errors_on_one_line(overrides: Sequence[str]) -> Iterator[None]:
    """Raise a UserError for what Hydra raises about these overrides."""
    try:
        yield
    except MissingConfigException as error:
        raise UserError(_no_such_choice(error)) from error
    except OverrideParseException as error:
        for override in overrides:
            parse_overrides([override])
        raise UserError(_on_one_line(error)) from error
    except (HydraException, OmegaConfBaseException) as error:
        text = str(error)
        if text.startswith(UNKNOWN):
            key = text.split("'")[1]  # the section, where the override has a section's keys
            inner = re.search(r"full_key: (\S+)", str(error.__cause__))
            if inner is not None and inner[1].startswith(f"{key}."):
                key = inner[1]
            raise UserError(_unknown_key(key, overrides)) from error
        if text.startswith(NO_KEYS):
            line = text.removeprefix(NO_KEYS).strip()
            if NOT_CONVERTED in (reason := str(error.__cause__).partition("\n")[0]):
                raise UserError(f"{line}: {reason}") from error
            section = line.partition("=")[0]
            raise UserError(f"{line}; it has keys of its own, {section}.KEY=VALUE") from error
        raise UserError(_on_one_line(error)) from error


def _no_such_choice(error: MissingConfigException) -> str:
    """Return the message on a choice that has no file; the name may be a path with slashes."""
    file = error.missing_cfg_file or ""
    group, _, name = file.rpartition("/") if file.startswith("hydra/") else file.partition("/")
    choices = error.options or _choices(group)  # Hydra lists none for one of several
    listed = f"{did_you_mean(name, choices)}{group} is one of {', '.join(choices)}"
    message = f"{group}={name}: no such choice; {listed}"
    if group == "hydra/launcher":
        return f"{message}; `pip install -e '.[launch]'` installs others"
    if group == "model":
        if Path(name).expanduser().is_dir():
            return (
                f"model={name}: a folder in a list of models; give -m model=local "
                f"model.path={name},… with folders alone"
            )
        place = " and no such folder" if "/" in name else ""
        return (
            f"model={name}: no such choice{place}; {listed}, a saved model's folder or a .gguf "
            "file; a model of the hub is model=local model.path=ORGANISATION/NAME"
        )
    return message


def compose(overrides: Sequence[str], folder: Path = CONF) -> DictConfig:
    """Return one job's configuration as Hydra composes it from `folder`, unchecked."""
    register()
    with hydra.initialize_config_dir(str(folder), version_base="1.3"):
        return hydra.compose("config", overrides=list(overrides))


SEVERAL_KEYS = re.compile(r"[\s,]+(?=[+~]*[a-z][\w./@]*=)")  # between key=value and key=value


def parse_overrides(arguments: Sequence[str]) -> list[Override]:
    """Return Hydra's overrides. Raises UserError, which suggests a form that parses."""
    parser = OverridesParser.create()
    overrides: list[Override] = []
    for i, argument in enumerate(arguments):
        try:
            overrides += parser.parse_overrides([argument])
        except OverrideParseException as error:
            if len(parts := SEVERAL_KEYS.split(argument)) > 1:
                alone = " ".join(map(shlex.quote, parts))
                raise UserError(f"{argument!r}: give each key alone: {alone}") from error
            if "=" in argument:
                key, _, value = argument.partition("=")
                reason = "quote a value with such characters"
            else:  # the shell cut a value at a blank
                key, _, value = (arguments[i - 1] if i else "KEY=VALUE").partition("=")
                value += f" {argument}" if i else ""
                reason = "write key=value; quote a value with blanks"
            value = value.replace("\\", "\\\\").replace('"', '\\"')
            quoted = shlex.quote(f'{key}="{value}"')
            raise UserError(f"{argument!r}: {reason}, e.g. {quoted}") from error
    return overrides


def _on_one_line(error: Exception) -> str:
    """Shorten a message of Hydra's, which has several lines and names the search path."""
    text = " ".join(str(error).split("Config search path")[0].split())
    return text.removeprefix("In 'config': ")


# Old name → new name, for the message alone: the old key itself is refused.
RENAMED_KEYS = {
    "task.validation_problems": "task.tune_problems",
    "train.behaviour": "train.missing_logprobs",
    "engine.check_every": "engine.logprob_check_every",
    "engine.check_samples": "engine.logprob_check_samples",
    "engine.check_bound": "engine.logprob_check_bound",
    "sandbox.remember": "sandbox.verdict_cache",
}


W_AND_B_MODE = ("logger.mode", "logger.wandb.mode")
OF_SWEEPS = ("again", "jobs")  # keys that run.py takes from the command line of a sweep
OF_STUDIES = ("arms", "live", "plan", "study")  # keys of a study's command alone


def _unknown_key(key: str, overrides: Sequence[str]) -> str:
    """Return the message on a key that the chosen algorithm, task etc. does not have."""
    if key in RENAMED_KEYS:
        return f"unknown key {key!r}; it is now {RENAMED_KEYS[key]!r}"
    if key in W_AND_B_MODE:
        return f"unknown key {key!r}; W&B's mode is an environment variable: WANDB_MODE=offline"
    if key in OF_SWEEPS:
        return f"{key}=: only a sweep takes it; add -m"
    if key in OF_STUDIES:
        command = "python -m experiments.studies.run study=NAME"
        given = "" if key == "study" else f" {key}=VALUE"
        return f"unknown key {key!r}; a study takes it: `{command}{given}`"
    pairs = [override.partition("=") for override in overrides]
    choices = [f"{g}={name}" for g, _, name in pairs if (CONF / g).is_dir() and name[:1] != "{"]
    known = list(leaves(plain_values(compose(choices))))
    group, _, rest = key.partition(".")
    elsewhere = [f"{group}={name}" for name, keys in _options(group) if rest in keys]
    if elsewhere and key not in known:
        return f"unknown key {key!r} with these choices; it belongs to {', '.join(elsewhere)}"
    return f"unknown key {key!r}; {did_you_mean(key, known)}`python run.py --help` lists the keys"


def leaves(values: dict[str, Any], prefix: str = "") -> Iterator[str]:
    """Yield the dotted keys of the values in a nested configuration."""
    for key, value in values.items():
        if isinstance(value, dict) and value:
            yield from leaves(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}"


def _options(group: str) -> Iterator[tuple[str, set[str]]]:
    """Yield each choice of a group, with its keys."""
    defaults = dict(defaults_by_choice(group))
    for file in sorted((CONF / group).glob("*.yaml")):
        values = plain_values(OmegaConf.load(file))
        stated = values.get(group, values)
        yield file.stem, set(leaves(defaults.get(file.stem, {}) | stated))


def say_aside(text: str) -> None:
    """Print a line on stderr."""
    print(text, file=sys.stderr, flush=True)


def counted(
    items: Sequence[Item], doing: str, say: Callable[[str], None] = say_aside
) -> Iterator[Item]:
    """Yield the items; where they take long, say how many are done."""
    said = time.monotonic()
    for done, item in enumerate(items):
        if done and len(items) > FEW and time.monotonic() - said >= SILENCE_S:
            say(f"{doing}: {done} of {len(items)} …")
            said = time.monotonic()
        yield item
