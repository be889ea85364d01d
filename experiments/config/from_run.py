"""`from=FOLDER`: the configuration of an earlier run, as choices and keys of a command line.

Sweeps, `--cfg job` and `--help` read these words like any others. A choice that is given beside
them (`algo=ppo`, `experiment=NAME`) decides on the keys that its file states, and `algo=` on all
options of the algorithm: an option of SPO is none of PPO's, or means another thing there.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from omegaconf import OmegaConf

from envs.command_line import key_names
from envs.import_by_name import load_function
from envs.tasks.config import TaskConfig
from experiments.config.class_defaults import CONF
from experiments.config.composition import (
    RENAMED_KEYS,
    compose,
    errors_on_one_line,
    jobs_of,
)
from experiments.config.resume import flat, named_folder, recorded_values
from experiments.config.schema import RunConfig, plain_values
from experiments.errors import UserError

FROM = "from="
NAMED_BY = {  # group → the key that has the name of its choice
    "algo": "algo.name",
    "task": "task.name",
    "model": "model.name",
    "engine": "engine.name",
    "sandbox": "sandbox.kind",
    "runtime": "runtime.name",
}
STAND_INS = {"model": "local", "task": "own"}  # for names of no file, e.g. nano-after-sft
LOGGERS = {
    "wandb": "logger.wandb.project",
    "trackio": "logger.trackio.project",
    "tensorboard": "logger.tensorboard",
}
CHOICE = "choice of "  # before the group, among the keys that a file states
Names = tuple[str, ...]  # of choices: several in logger=[wandb,tensorboard]
PLAIN = re.compile(r"(?!(?:null|true|false|nan|inf)$)[A-Za-z_][\w./-]*", re.IGNORECASE)


@dataclass
class _Kept:
    """What stays of a recorded run, as words of a command line."""

    choices: dict[str, str]  # by group
    values: dict[str, str]  # by key
    composed: set[str]  # keys whose value the choices alone give


def with_recorded_run(arguments: Sequence[str]) -> list[str]:
    """Return command-line arguments in which `from=FOLDER` is spelt out. Raises UserError."""
    folders = [argument for argument in arguments if argument.startswith(FROM)]
    if not folders:
        return list(arguments)
    if any(argument.startswith("resume=") for argument in arguments):
        raise UserError(
            "from= begins a new run in a new folder, resume= continues a run in its own: give one"
        )
    recorded = _recorded(named_folder(folders[-1]), folders[-1])
    left_out = {word for word in arguments if word[:1] == "~" and word[1:] in recorded}
    flags = [word for word in arguments if word in ("-m", "--multirun")]  # Hydra: in front only
    words = [word for word in arguments if word not in (*folders, *left_out, *flags)]
    recorded = {key: value for key, value in recorded.items() if f"~{key}" not in left_out}
    choices = [w for w in words if "=" in w and (CONF / w.partition("=")[0]).is_dir()]
    kept = [_kept(recorded, job, folders[-1]) for job in jobs_of([*flags, *choices])]
    given = {word.lstrip("+").partition("=")[0] for word in words}
    return [*flags, *_agreed(kept, folders[-1], choices, given), *words]


def recorded_folder(typed: Sequence[str]) -> Path | None:
    """Return the run folder of `from=FOLDER`, if it is on the command line as it was typed."""
    folders = [word for word in typed if word.startswith(FROM)]
    return Path(folders[-1].removeprefix(FROM)) if folders else None


def origin_line(arguments: Sequence[str], typed: Sequence[str]) -> str:
    """Say what `from=FOLDER` stands for."""
    words = " ".join(word for word in arguments if word not in typed)
    return f"{FROM}{recorded_folder(typed)}: {words}"


def _recorded(folder: Path, where: str) -> dict[str, Any]:
    """Return a run's values by dotted key, under the names that a command line has for them.

    `eval.k` is as it was requested: config.yaml lacks each k above the run's `eval.samples`.
    """
    values = recorded_values(folder, where)
    recorded = _flat_with_aliases(values)
    info = json.loads((folder / "run.json").read_text())
    if "requested_k" in info:
        recorded["eval.k"] = info["requested_k"]
    if missing := [key for key in NAMED_BY.values() if key not in recorded]:
        raise UserError(f"{where}: its config.yaml has no {missing[0]}; give another run folder")
    return recorded


def _flat_with_aliases(values: dict[str, Any]) -> dict[str, Any]:
    names = key_names(TaskConfig)  # the field task.date_from is the key task.from
    task = {names.get(key, key): value for key, value in values.get("task", {}).items()}
    return dict(flat(values | {"task": task}))


def _agreed(
    kept: Sequence[_Kept], where: str, choices: Sequence[str], given: Collection[str]
) -> list[str]:
    """Return the words that all jobs of a sweep share. Raises UserError if they differ."""
    needed = {key for job in kept for key in job.values.keys() - job.composed}
    first = kept[0]
    if any(job.choices != first.choices or needed - job.values.keys() for job in kept):
        raise UserError(
            f"{where}: {' '.join(choices)}: these choices would each keep other keys of the run; "
            "give one of them in a command"
        )
    values = (word for key, word in first.values.items() if key in needed and key not in given)
    return [*first.choices.values(), *values]


def _kept(recorded: Mapping[str, Any], given: Sequence[str], where: str) -> _Kept:
    """Return what stays of a run beside the given choices. Raises UserError for unknown keys."""
    own = _choices_of(recorded)
    pairs = [word.partition("=") for word in given]
    new, keys = _decided(own, {group: _names(value) for group, _, value in pairs})
    choices = {g: _choice(g, names, where) for g, names in own.items() if g not in new}
    words = [*choices.values(), *given]
    with errors_on_one_line(words):
        composed = _flat_with_aliases(plain_values(compose(words)))
    if "task" in new and recorded["name"] == recorded["task.name"]:
        keys.add("name")
    if "algo" in new:
        keys |= {"tuned", *(key for key in recorded if key.startswith("algo."))}
    values = {key: value for key, value in recorded.items() if key not in keys}
    known = _defaults(composed["algo.core"]) | composed
    if unknown := [key for key, value in values.items() if not _is_known(key, value, known)]:
        raise UserError(_unknown(unknown, where))
    return _Kept(
        choices,
        {
            key: f"{'' if key in composed else '++'}{key}={as_word(value)}"
            for key, value in values.items()
        },
        {key for key, value in values.items() if known.get(key, {}) == value},
    )


def _choices_of(recorded: Mapping[str, Any]) -> dict[str, Names]:
    """Return the run's choice of each group: the file that has the recorded name, or a stand-in."""
    own: dict[str, Names] = {group: (str(recorded[key]),) for group, key in NAMED_BY.items()}
    for group, stand_in in STAND_INS.items():
        if not _file(group, own[group][0]).is_file():
            own[group] = (stand_in,)
    own["logger"] = tuple(name for name, key in LOGGERS.items() if recorded.get(key)) or ("none",)
    return own


def _decided(own: Mapping[str, Names], given: Mapping[str, Names]) -> tuple[set[str], set[str]]:
    """Return the groups and the keys on which the given choices decide, in place of the run.

    They are those that the choices' files state otherwise than the files of the run's own choices.
    """
    new, keys, pending = dict[str, Names | None](given), set[str](), list(given)
    while pending:
        group = pending.pop()
        before, now = _stated(group, own.get(group)), _stated(group, new[group])
        for key in before.keys() | now.keys():
            if before.get(key, ...) == now.get(key, ...):  # a file may state null
                continue
            other = key.removeprefix(CHOICE)
            if other == key:
                keys.add(key)
            elif other not in new and (now.get(key) or before[key] == own.get(other)):
                new[other] = now.get(key)  # None: the default again
                pending.append(other)
    return set(new), keys


def _stated(group: str, names: Names | None) -> dict[str, Any]:
    """Return the keys that files of conf/ state, with their values; CHOICE + group for choices."""
    stated = dict[str, Any]()
    for name in names or ():
        if not (file := _file(group, name)).is_file():
            continue
        values = plain_values(OmegaConf.load(file), resolve=False)
        for entry in values.pop("defaults", []):
            if isinstance(entry, str):  # a file that this one starts from
                stated |= _stated(group, (entry,))
            else:
                pairs = ((key.rpartition("/")[2], value) for key, value in entry.items())
                stated |= {CHOICE + other: (str(value),) for other, value in pairs}
        if file.read_text().startswith("# @package _global_"):
            stated |= flat(values)
        else:
            stated |= {NAMED_BY.get(group, group): name, **dict(flat(values, f"{group}."))}
    return stated


def _file(group: str, name: str) -> Path:
    return CONF / group / f"{name}.yaml"


def _names(value: str) -> Names:
    return tuple(name.strip() for name in value.strip("[]").split(","))


def _choice(group: str, names: Names, where: str) -> str:
    """Return the word of a choice. Raises UserError if there is no such file any more."""
    for name in names:
        if not _file(group, name).is_file():
            raise UserError(f"{where}: {group}={name}: no such choice now; give {group}=NAME")
    return f"{group}={names[0]}" if len(names) == 1 else f"{group}=[{','.join(names)}]"


def _defaults(core: str) -> dict[str, Any]:
    """Return the defaults of all keys, those that a composition lacks included."""
    try:
        options = load_function(core, "algo.core").Config  # type: ignore[attr-defined]
    except ValueError as error:
        raise UserError(str(error)) from error
    return _flat_with_aliases(asdict(RunConfig(algo=options())))


def _is_known(key: str, value: Any, known: Mapping[str, Any]) -> bool:
    """Whether a key, or the section that it is in, exists; an empty section is nothing."""
    parents = [key[:i] for i, letter in enumerate(key) if letter == "."]
    return value == {} or key in known or any(parent in known for parent in parents)


def _unknown(keys: Sequence[str], where: str) -> str:
    named = [f"{k} (now {RENAMED_KEYS[k]})" if k in RENAMED_KEYS else k for k in keys]
    words = " ".join(f"'~{key}'" for key in keys)
    return (
        f"{where}: keys of that run that no longer exist: {', '.join(named)}; leave them out with "
        f"{words}, and give what replaces them"
    )


def as_word(value: Any) -> str:
    """Return a value as Hydra's grammar of the command line has it."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list):
        return f"[{','.join(map(as_word, value))}]"
    if not isinstance(value, str):
        return repr(value)
    if PLAIN.fullmatch(value):
        return value
    # a backslash is an escape only before a quote
    escaped = re.sub(r'(\\*)("|$)', lambda found: found[1] * 2 + '\\"' * bool(found[2]), value)
    return f'"{escaped}"'
