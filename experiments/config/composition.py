"""The configurations of a command line's jobs, composed and checked. Nothing heavy is imported."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from hydra.core.override_parser.types import Override
from hydra.errors import HydraException
from omegaconf import DictConfig

from envs.command_line import CONF, did_you_mean
from envs.composition import CONFIG_DIR, CONFIG_PATH, choices_of, composed, parse_overrides
from experiments.config.checks import parse
from experiments.config.model_folder import with_model_folder
from experiments.config.schema import RunConfig
from experiments.errors import UserError

__all__ = ["CONF", "compose", "config_of", "is_sweep", "jobs_of"]

SEVERAL = ("experiment", "logger")  # groups of which a run may have several choices
SWEEP = ("-m", "--multirun")
FLAGS = {"-cp": CONFIG_PATH, "--config-path": CONFIG_PATH, "-cd": CONFIG_DIR} | {
    "--config-dir": CONFIG_DIR
}


def compose(overrides: Sequence[str], folder: Path = CONF) -> DictConfig:
    """Return one job's configuration as Hydra composes it from `folder`, unchecked."""
    try:
        return composed(with_model_folder(overrides), folder)
    except ValueError as error:
        raise UserError(str(error)) from error


def config_of(overrides: Sequence[str]) -> RunConfig:
    """Return the checked configuration of one job. Raises UserError."""
    return parse(compose(overrides))


def is_sweep(arguments: Sequence[str]) -> bool:
    """Whether the command line asks for several jobs."""
    return not set(SWEEP).isdisjoint(arguments)


def jobs_of(arguments: Sequence[str]) -> list[list[str]]:
    """Return the words of each job: every combination with -m, else one. Raises UserError.

    Hydra's --config-path FOLDER (a recorded config.yaml) and --config-dir FOLDER (further choices)
    stand in each job as one word.
    """
    words, flags = _without_flags(arguments)
    sweep = is_sweep(arguments)
    try:
        overrides = parse_overrides(words)
        for override in overrides:
            _check_single(override, sweep)
        if not sweep:
            return [[*flags, *words]]
        from hydra._internal.core_plugins.basic_sweeper import BasicSweeper

        jobs = BasicSweeper.split_arguments(overrides, None)[0]
    except (HydraException, ValueError) as error:
        raise UserError(" ".join(str(error).split())) from error
    return [[*flags, *job] for job in jobs]


def _without_flags(arguments: Sequence[str]) -> tuple[list[str], list[str]]:
    """Separate key=value from --config-path and --config-dir. Raises UserError for others."""
    words, flags, rest = list[str](), list[str](), list(arguments)
    while rest:
        argument = rest.pop(0)
        word, _, value = argument.partition("=")
        if word in FLAGS:
            folder = value or (rest.pop(0) if rest else "")
            flags.append(f"{FLAGS[word]}{folder}")
        elif word.startswith("-") and word not in SWEEP:
            known = [*SWEEP, *FLAGS, "--cfg", "--help"]
            key = word.lstrip("-")
            write = f"keys have no dash; write {key}={value or 'VALUE'}"
            raise UserError(f"{word!r}: {did_you_mean(word, known)}{write}")
        elif word not in SWEEP:
            words.append(argument)
    return words, flags


def _check_single(override: Override, sweep: bool) -> None:
    """Raise ValueError for several values where one is taken."""
    line, key = override.input_line or "", override.key_or_group
    if override.is_sweep_override():
        if not sweep:
            raise ValueError(f"{line}: several values are a sweep: python run.py -m {line}")
        return
    value = override.value()
    if not (CONF / key).is_dir() or isinstance(value, dict) or (value and key in SEVERAL):
        return
    if isinstance(value, list):
        several = ",".join(map(str, value))
        raise ValueError(f"{line}: one {key} for a run; -m {key}={several} runs each")
    if not isinstance(value, str):
        raise ValueError(f"{line}: no such choice; {key} is one of {', '.join(choices_of(key))}")
