"""From a command line to configurations: composed, of a resumed run, or shown instead of a run.

Nothing heavy is imported.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

from hydra.core.override_parser.types import Glob
from hydra.errors import HydraException
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException
from yaml import YAMLError

from envs.command_line import (
    CONF,
    CONFIG_DIR,
    CONFIG_PATH,
    choice_lines,
    choices_of,
    composed,
    did_you_mean,
    leaves,
    parse_overrides,
    wants_help,
    yaml_lines,
)
from experiments.config.checks import parse, print_notes
from experiments.config.preflight import with_model_folder
from experiments.config.schema import RunConfig, plain_values
from experiments.errors import UserError

SEVERAL = ("experiment", "logger")  # groups of which a run may have several choices
SWEEP = ("-m", "--multirun")
FLAGS = {"-cp": CONFIG_PATH, "-cd": CONFIG_DIR} | {f[:-1]: f for f in (CONFIG_PATH, CONFIG_DIR)}


def compose(overrides: Sequence[str]) -> DictConfig:
    """Return one job's configuration as Hydra composes it, unchecked."""
    try:
        return composed(with_model_folder(overrides), CONF)
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
    words, flags, rest = list[str](), list[str](), list(arguments)
    while rest:
        argument = rest.pop(0)
        word, _, given = argument.partition("=")
        if word in FLAGS:
            folder = given or (rest.pop(0) if rest else "")
            flags.append(f"{FLAGS[word]}{folder}")
        elif word.startswith("-") and word not in SWEEP:
            near = did_you_mean(word, [*SWEEP, *FLAGS, "--cfg", "--help"])
            write = f"keys have no dash; write {word.lstrip('-')}={given or 'VALUE'}"
            raise UserError(f"{word!r}: {near}{write}")
        elif word not in SWEEP:
            words.append(argument)
    sweep = is_sweep(arguments)
    try:
        overrides, seen = parse_overrides(words), dict[str, str]()
        for override in overrides:
            line, key = override.input_line or "", override.key_or_group
            if (first := seen.setdefault(key, line)) != line:
                raise ValueError(f"{first} {line}: give {key} once; -m {key}=A,B runs each value")
            if override.is_sweep_override():
                if not sweep:
                    several = f"; {key}=[{line.partition('=')[2]}] is one run with all of them"
                    more = f"python run.py -m {line}{several * (key in SEVERAL)}"
                    raise ValueError(f"{line}: several values are a sweep: {more}")
                if isinstance(override.value(), Glob):
                    raise ValueError(f"{line}: patterns are not read; list the values")
                try:
                    values = [*override.sweep_string_iterator()]
                except (HydraException, ValueError) as error:
                    raise ValueError(f"{line}: {error}") from error
                if not values:
                    raise ValueError(f"{line}: a sweep over no value")
                if twice := [value for value in values if values.count(value) > 1]:
                    raise ValueError(f"{line}: {twice[0]} is listed twice, for two equal runs")
                continue
            value = override.value()
            if not (CONF / key).is_dir() or isinstance(value, dict) or (value and key in SEVERAL):
                continue
            if isinstance(value, list):
                several = ",".join(map(str, value))
                raise ValueError(f"{line}: one {key} for a run; -m {key}={several} runs each")
            if not (isinstance(value, str) and value):
                choices = ", ".join(choices_of(key))
                raise ValueError(f"{line}: no such choice; {key} is one of {choices}")
        if not sweep:
            return [[*flags, *words]]
        from hydra._internal.core_plugins.basic_sweeper import BasicSweeper

        jobs = BasicSweeper.split_arguments(overrides, None)[0]
    except (HydraException, ValueError) as error:
        raise UserError(" ".join(str(error).split())) from error
    return [[*flags, *job] for job in jobs]


# Resumed runs.

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
    "engine.static_cache",
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
    old = dict(leaves(recorded))
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
            elif key not in old:
                near = did_you_mean(key, list(old))
                raise ValueError(f"unknown key {key!r}; {near}this run does not have it")
            else:
                OmegaConf.update(composed, key, value, merge=False)
    except ValueError as error:
        raise UserError(str(error)) from error
    config = parse(composed)
    new = dict(leaves(asdict(config)))
    changes = [
        f"{key}={new.get(key)} (was {old.get(key)})"
        for key in sorted(old.keys() | new.keys())
        if old.get(key) != new.get(key) and not may_change(key)
    ]
    if changes:
        raise UserError(
            f"{where}: {', '.join(changes)} would be another run; only "
            f"{', '.join(key.rstrip('.') for key in MAY_CHANGE)} may change (--config-path "
            f"{folder} begins a new run)"
        )
    if config.steps != recorded["steps"] and config.train.schedule != "constant":
        raise UserError(
            f"{where}: steps={config.steps} (was {recorded['steps']}) under train.schedule="
            f"{config.train.schedule}: the learning rates so far depended on the old value"
        )
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


def recorded_config(folder: Path, where: str) -> RunConfig:
    """Return a run folder's checked configuration. Raises UserError, which begins with `where`."""
    return parse(OmegaConf.create(recorded_values(folder, where)))


def may_change(key: str) -> bool:
    """Whether a dotted key may have another value in a run that is resumed."""
    return any(key == may or (may[-1] == "." and key.startswith(may)) for may in MAY_CHANGE)


def is_finished(folder: Path, config: RunConfig) -> bool:
    """Whether a run folder is finished under this configuration."""
    info = json.loads((folder / "run.json").read_text())
    recorded = OmegaConf.load(folder / "config.yaml")
    return info.get("status") == "finished" and recorded.steps >= config.steps


# `--help` and `--cfg job`.


GROUPS = ("algo", "task", "model", "engine", "sandbox", "runtime", "logger", "experiment")


def shown_text(arguments: Sequence[str], usage: str = "") -> str | None:
    """The text that a command line asks for in place of a run, or None. Raises UserError.

    The help begins with `usage`.
    """
    if wants_help(arguments):
        words = [word for word in arguments if not wants_help([word])]
        return "\n".join([usage.strip(), *_help(words)])
    words = [word for word in arguments if word not in ("--cfg", "-c", "--cfg=job", "job")]
    if len(words) == len(arguments):
        return None
    if is_sweep(words):  # its own keys
        words = [word for word in words if not word.startswith(("jobs=", "again="))]
    if folder := next((Path(w[7:]) for w in words if w.startswith("resume=")), None):
        rest = [word for word in words if not word.startswith("resume=")]
        return OmegaConf.to_yaml(OmegaConf.create(asdict(resumed_config(folder, rest)))).rstrip()
    texts = []
    for job in jobs_of(words):
        print_notes([config_of(job)])
        texts.append(OmegaConf.to_yaml(compose(job), resolve=True).rstrip())
    return "\n---\n".join(texts)


def _help(words: Sequence[str]) -> Iterator[str]:
    """All choices, and the keys of the chosen ones with the comments of their files."""
    values = plain_values(compose(jobs_of(words)[0]))
    for group in GROUPS:
        yield from ("", f"== {group}=NAME ==", *choice_lines(CONF / group))
    sections = [field.name for field in fields(RunConfig) if isinstance(values[field.name], dict)]
    sections.remove("logger")  # its keys stand in config.yaml
    top = {key: value for key, value in values.items() if key not in sections}
    yield from ("", "== Keys of the run ==", *yaml_lines(CONF / "config.yaml", top))
    for section in sections:
        name = values[section].get("name", values[section].get("kind"))
        alone, chosen = CONF / f"{section}.yaml", CONF / section / f"{name}.yaml"
        file = alone if alone.is_file() else chosen
        yield from ("", f"== {section} ==", *yaml_lines(file, values[section], f"{section}."))
