"""Settings in words: those shared by an experiment's runs, and those that differ by group."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd

from analysis.groups import (
    LABEL_SECTIONS,
    LONGEST_VALUE,
    MACHINE_KEYS,
    OFF_VALUES,
    RUN_SUFFIX,
    Group,
    Settings,
    as_text,
    canonical_json,
    cut,
    differing_keys,
    experiment_and_algo,
    flatten,
    join_names,
)
from analysis.runs import Run

PROBLEM_USES = {"train": "training", "eval": "evaluation"}  # key in run.json → words


def shared_settings(runs: Sequence[Run]) -> list[tuple[str, str]]:
    """Return (subject, description) for model, problems, evaluation, reward, judge and machine.

    Subjects that were not recorded are left out. Where runs differ, two descriptions are joined by
    "or". Of more than two, only the number is given.
    """
    describers = {
        "model": (_model, _parameters),
        "problems": (_problems, _left_out_problems),
        "evaluation": (_evaluation,),
        "reward": (_cheap_programs,),
        "judge": (_judge,),
        "judge errors": (_judge_errors,),
        "machine": (_machine,),
    }
    descriptions = []
    for subject, functions in describers.items():
        parts = [_alternatives(dict.fromkeys(filter(None, map(f, runs)))) for f in functions]
        if text := "; ".join(filter(None, parts)):
            descriptions.append((subject, text))
    return descriptions


def _alternatives(values: Collection[str]) -> str:
    return " or ".join(values) if len(values) <= 2 else f"{len(values)} different"


def _config(run: Run, key: str) -> Any:
    return flatten(run.config).get(key)


def _model(run: Run) -> str:
    return as_text(_config(run, "model.name") or "")


def _parameters(run: Run) -> str:
    count = run.info.get("parameters")
    return f"{count:,} parameters" if count else ""


def _problems(run: Run) -> str:
    counts = [
        f"{run.info[key]:,} {words}"
        for key, words in (("train_problems", "for training"), ("eval_problems", "for evaluation"))
        if run.info.get(key) is not None
    ]
    return ", ".join([as_text(_config(run, "task.name") or ""), *counts])


def _left_out_problems(run: Run) -> str:
    task = run.info.get("task")
    counts = task.get("left_out") if isinstance(task, dict) else None
    if not counts:
        return ""
    descending = sorted(counts.items(), key=lambda item: -item[1])
    reasons = ", ".join(f"{reason} {count:,}" for reason, count in descending)
    return f"{sum(counts.values()):,} left out: {reasons}"


def _evaluation(run: Run) -> str:
    formats = {
        "split": "{} split",
        "samples": "{} samples per problem",
        "temperature": "temperature {}",
        "top_p": "top-p {}",
        "further_temperatures": "at the start and the end also temperature {}",
    }
    values = {key: _config(run, f"eval.{key}") for key in formats}
    if further := values["further_temperatures"]:
        values["further_temperatures"] = join_names(map(as_text, further))
    else:
        values["further_temperatures"] = None
    return ", ".join(
        formats[key].format(as_text(value)) for key, value in values.items() if value is not None
    )


def _judge(run: Run) -> str:
    version, recorded = run.info.get("judge_version"), sandbox(run)
    name, strength = recorded["sandbox"], recorded["sandbox_strength"]
    description = f"sandbox {name} ({strength})" if strength else name and f"sandbox {name}"
    return ", ".join(filter(None, [version and f"version {version}", description]))


def _cheap_programs(run: Run) -> str:
    """What the run's problems pay for programs that solve nothing."""
    earnings = run.info.get("cheap_programs") or {}
    parts = [
        f"{_earned(earnings[use])} {words} problems"
        for use, words in PROBLEM_USES.items()
        if earnings.get(use)
    ]
    text = f"programs that solve nothing earn it on {' and on '.join(parts)}" if parts else ""
    kind = _config(run, "task.reward.kind")
    if "train" in earnings and kind not in (None, "binary"):
        name, share = max(earnings["train"]["mean_share"].items(), key=lambda item: item[1])
        text += f"; under {kind} rewards the best of them ({name}) passes {100 * share:.1f} % "
        text += "of the tests of a training problem on average"
    return text


def _earned(earnings: dict[str, Any]) -> str:
    compared = f"{earnings['compared']:,}"
    if not earnings["earned_by_any"]:
        return f"none of {compared}"
    counts = sorted(earnings["earned"].items(), key=lambda item: -item[1])
    programs = ", ".join(f"{name}: {count:,}" for name, count in counts if count)
    return f"{earnings['earned_by_any']:,} ({programs}) of {compared}"


def _judge_errors(run: Run) -> str:
    """The judge's error rates on the run's problems, or the command that measures them."""
    recorded = run.info.get("judge_errors") or {}
    parts, unmeasured = [], []
    for use, words in PROBLEM_USES.items():
        if rates := recorded.get(use):
            text = " and ".join(filter(None, (_rate(rates, "right"), _rate(rates, "wrong"))))
            if text:
                part = f"{rates['measured_problems']:,} of {rates['problems']:,} {words} problems"
                parts.append(f"the judge {text} (of {part})")
            else:
                unmeasured.append(words)
    if unmeasured:
        command = recorded.get("command")
        cure = f"; run {command}" if command else ""
        parts.append(f"not measured on the {' and '.join(unmeasured)} problems{cure}")
    return "; ".join(parts)


def _rate(rates: dict[str, Any], label: str) -> str:
    """Return a rate like "rejects 0.9 % [0.4, 1.6] of 1,204 right ones"; "" without programs."""
    verb, key = {
        "right": ("rejects", "false_rejects"),
        "wrong": ("accepts", "false_accepts"),
    }[label]
    if not rates.get(key):
        return ""
    share, low, high = (f"{100 * value:.1f}" for value in rates[key])
    return f"{verb} {share} % [{low}, {high}] of {rates[label]:,} {label} programs"


def _machine(run: Run) -> str:
    hardware = run.info.get("hardware")
    if not isinstance(hardware, dict):
        return as_text(hardware) if hardware else ""
    return as_text({name: value for name, value in hardware.items() if value is not None})


def sandbox(run: Run) -> dict[str, str | None]:
    """Return the run's sandbox as columns: its name, and how strongly it isolates programs."""
    recorded = run.info.get("sandbox")
    if not isinstance(recorded, dict):
        return {"sandbox": recorded, "sandbox_strength": None}
    rest = {key: value for key, value in recorded.items() if key not in ("name", "strength")}
    strength = [str(recorded.get("strength") or ""), as_text(rest) if rest else ""]
    return {"sandbox": recorded.get("name"), "sandbox_strength": "; ".join(filter(None, strength))}


Setting = tuple[str, list[tuple[str, list[str]]]]  # key, [(value, labels of groups with it), …]


def differing_settings(groups: Sequence[Group]) -> list[Setting]:
    """Return the settings in which groups differ, each value with the labels of its groups.

    An algorithm's own settings are compared between the groups of that algorithm only.
    """
    keys = differing_keys([group.settings for group in groups])
    table = [(key, _labels_by_value(key, groups)) for key in keys if not _of_algorithm(key)]
    for algo in sorted({group.algo for group in groups}):
        same = [group for group in groups if group.algo == algo]
        keys = differing_keys([group.settings for group in same])
        table += [(key, _labels_by_value(key, same)) for key in keys if _of_algorithm(key)]
    return table


def _of_algorithm(key: str) -> bool:
    return key.split(".")[0] == "algo"


def _labels_by_value(key: str, groups: Sequence[Group]) -> list[tuple[str, list[str]]]:
    values: dict[str, tuple[str, list[str]]] = {}
    for group in groups:
        is_set = key in group.settings
        canonical = canonical_json(group.settings[key]) if is_set else ""
        text = as_text(group.settings[key]) if is_set else "not set"
        values.setdefault(canonical, (text, []))[1].append(group.label)
    return list(values.values())


NOTHING = "–"
FRESH = "fresh"
Cells = tuple[list[str], list[list[str]]]  # heading and rows


def hyperparameters(groups: Sequence[Group]) -> tuple[list[tuple[str, str]], Cells]:
    """Return what all groups share as (title, value), and a table of the rest, a row per group.

    Settings that a group's algorithm has not, and those that are off, are dashes. A title that says
    nothing of any group is left out.
    """
    texts = _texts(groups)
    shared = [(title, of[0]) for title, of in texts.items() if of[0] and len(set(of)) == 1]
    differing = [title for title, of in texts.items() if len(set(of)) > 1]
    rows = [
        [group.label, *(texts[title][place] or NOTHING for title in differing)]
        for place, group in enumerate(groups)
    ]
    return shared, (["", *differing], rows if differing else [])


def _texts(groups: Sequence[Group]) -> dict[str, list[str]]:
    """Return title → what it says of each group, "" where a group has nothing of the kind."""
    origins = {
        "starts from": starting_points(groups),
        "recorded responses of": recorded_responses(groups),
    }
    columns = {
        title: [column.describe(g.settings) for g in groups] for title, column in COLUMNS.items()
    }
    return origins | columns


# A line for each group, so that a reader knows what its name stands for.

# What a name stands for first; the other hyper-parameters may only be tuned.
MAIN_TITLES = (
    *("starts from", "recorded responses of"),
    *("others' programs", "replayed", "rollout policy"),
)


def descriptions(groups: Sequence[Group]) -> list[tuple[str, str]]:
    """Return label and description of each group; [] if the algorithms alone describe them.

    A description is the algorithm and what is not the same for all groups: first MAIN_TITLES, then
    settings that are words, then other hyper-parameters and numbers. What is off is left out.
    """
    differing = {title: of for title, of in _texts(groups).items() if len(set(of)) > 1}
    words, numbers = _other_settings(groups)
    lines = []
    for place in range(len(groups)):
        said = {
            title: f"{title} {of[place]}"
            for title, of in differing.items()
            if of[place] not in ("", FRESH)
        }
        main = [said.pop(title) for title in MAIN_TITLES if title in said]
        lines.append([*main, *words[place], *said.values(), *numbers[place]])
    if not any(lines):
        return []
    return [
        (group.label, "; ".join([group.algo, *line]))
        for group, line in zip(groups, lines, strict=True)
    ]


def _other_settings(groups: Sequence[Group]) -> tuple[list[list[str]], list[list[str]]]:
    """Return for each group its differing settings that COLUMNS lacks, as key=value.

    First those that are words, then numbers. An algorithm's own settings are compared between its
    groups only; of others, what is off is left out.
    """
    words: list[list[str]] = [[] for _ in groups]
    numbers: list[list[str]] = [[] for _ in groups]
    for key, members in _differing(groups):
        for place in members:
            settings = groups[place].settings
            of_algorithm = key.startswith("algo.")
            if key not in settings or (settings[key] in OFF_VALUES and not of_algorithm):
                continue
            text = f"{key.rpartition('.')[2]}={cut(as_text(settings[key]), LONGEST_VALUE)}"
            number = isinstance(settings[key], (int, float)) and type(settings[key]) is not bool
            (numbers if number else words)[place].append(text)
    return words, numbers


def _differing(groups: Sequence[Group]) -> Iterator[tuple[str, list[int]]]:
    """Yield key and places of the groups that it is compared between, where it differs."""
    known = {key for column in COLUMNS.values() for key in column.keys} | set(ORIGIN_KEYS)
    everyone = list(range(len(groups)))
    for algo in dict.fromkeys(group.algo for group in groups):
        same = [place for place in everyone if groups[place].algo == algo]
        for key in differing_keys([groups[place].settings for place in same]):
            if key.startswith("algo.") and key not in known:
                yield key, same
    for key in differing_keys([group.settings for group in groups]):
        section, _, last = key.partition(".")
        if section in ("replay", *LABEL_SECTIONS[1:]) and not {key, last} & {*known, *MACHINE_KEYS}:
            yield key, everyone


# What is said of a group's settings.


class Column(NamedTuple):
    """A hyper-parameter: the keys that it follows from, and what it says of a group's settings."""

    keys: tuple[str, ...]
    describe: Callable[[Settings], str]


def _of(*keys: str, form: str = "{}") -> Column:
    """Describe a group by these keys' values, "" if one is missing or all are off."""

    def describe(settings: Settings) -> str:
        values = [settings.get(key) for key in keys]
        if any(value is None for value in values) or all(value in OFF_VALUES for value in values):
            return ""
        return form.format(*map(as_text, values))

    return Column(keys, describe)


def _share(key: str) -> Column:
    """Describe a group by a share as a percentage, "" if it is 0."""
    return Column((key,), lambda s: f"{100 * s[key]:g} %" if s.get(key) else "")


def _learning_rate(settings: Settings) -> str:
    rate, schedule = settings.get("algo.learning_rate"), settings.get("train.schedule")
    if rate is None:
        return ""
    return as_text(rate) if schedule in (None, "constant") else f"{as_text(rate)}, {schedule}"


def _staleness(settings: Settings) -> str:
    """Describe how far the rollout policy is behind, in batches; "fresh" if it never is."""
    lag, sync = settings.get("train.lag"), settings.get("train.sync_every")
    if lag is None and sync is None:
        return ""
    parts = [f"lag {lag}"] if lag else []
    parts += [f"synced every {sync} batches"] if sync not in (None, 1) else []
    return ", ".join(parts) or FRESH


def _updates(settings: Settings) -> str:
    """Describe the optimiser steps on a batch: minibatches × epochs."""
    minibatches, epochs = settings.get("train.minibatches"), settings.get("train.epochs")
    if minibatches is None or epochs is None:
        return ""
    return "1" if minibatches == epochs == 1 else f"{minibatches} × {epochs}"


def _norm_clipping(settings: Settings) -> str:
    if quantile := settings.get("train.clip_quantile"):
        return f"quantile {as_text(quantile)}"
    norm = settings.get("train.max_grad_norm")
    return f"at {as_text(norm)}" if norm else ""


ORIGIN_KEYS = ("model.name", "model.path", "replay.from_runs", "replay.frozen")
COLUMNS: dict[str, Column] = {
    "steps": _of("steps"),
    "prompts × responses": _of("train.prompts", "train.group_size", form="{} × {}"),
    "learning rate": Column(("algo.learning_rate", "train.schedule"), _learning_rate),
    "critic's learning rate": _of("algo.critic_learning_rate"),
    "β": _of("algo.beta"),
    "KL weight": _of("algo.kl_coef"),
    "entropy weight": _of("algo.entropy_coef"),
    "weight decay": _of("train.weight_decay"),
    "norm clipping": Column(("train.clip_quantile", "train.max_grad_norm"), _norm_clipping),
    "minibatches × epochs": Column(("train.minibatches", "train.epochs"), _updates),
    "rollout policy": Column(("train.lag", "train.sync_every"), _staleness),
    "others' programs": _share("train.offline_share"),
    "replayed": _share("train.replay_share"),
    "temperature": _of("train.temperature"),
    "adapter": _of("model.adapter"),
}


def settings_table(groups: Sequence[Group]) -> pd.DataFrame:
    """Return settings.csv: group, setting, value, for all settings that can change a result."""
    rows = [
        (group.label, key, as_text(value))
        for group in groups
        for key, value in sorted(group.settings.items())
    ]
    return pd.DataFrame(rows, columns=["group", "setting", "value"])


def shared_values(groups: Sequence[Group]) -> list[tuple[str, str]]:
    """Return key and value of the settings that all groups have in common, by key."""
    first, *others = [
        {key: as_text(value) for key, value in group.settings.items()} for group in groups
    ]
    common = {key for key, text in first.items() if all(o.get(key) == text for o in others)}
    return [(key, first[key]) for key in sorted(common)]


def commands(groups: Sequence[Group]) -> list[tuple[str, str, str]]:
    """Return for each group its label, the command that makes its first run again, and the commit.

    The command reads the run's configuration from its folder. A packed study has no run folders: of
    its runs it is the command that began them.
    """
    rows = []
    for group in groups:
        run = group.runs[0]
        command = f"python run.py from={shlex.quote(_relative(run.path))}"
        if run.packed:
            command = str(run.info.get("command") or NOTHING)
        rows.append((group.label, command, _commit(run.info)))
    return rows


def _relative(path: Path) -> str:
    """Return the path below the present folder, else the whole path."""
    path = Path(path).resolve()
    return str(path.relative_to(Path.cwd())) if path.is_relative_to(Path.cwd()) else str(path)


def _commit(info: dict[str, Any]) -> str:
    return str(info.get("commit") or NOTHING)


BASE = "base"


def starting_points(groups: Sequence[Group]) -> list[str]:
    """Return for each group "base", or the label of the group whose final weights it took.

    Several bases are told apart by the model's name, or by its path where names are the same. A run
    of no group here is named by its experiment and algorithm. "" where no model was recorded.
    """
    labels = _labels_by_folder(groups)
    models = [_model_origins(group) for group in groups]
    parents = [_label_of_path(path, labels) for _, path in models]
    pairs = list(zip(models, parents, strict=True))
    bases = {model for model, parent in pairs if any(model) and not parent}
    by_name = len({name for name, _ in bases}) == len(bases)
    texts = {(name, path): f"{BASE} {name if by_name else path}" for name, path in bases}
    if len(bases) == 1:
        texts = dict.fromkeys(bases, BASE)
    return [parent or texts.get(model, "") for model, parent in pairs]


def _model_origins(group: Group) -> tuple[str, str]:
    """Return name and path of the model that a group starts from, "" where not recorded."""
    settings = flatten(group.runs[0].config)
    return str(settings.get("model.name") or ""), str(settings.get("model.path") or "")


def recorded_responses(groups: Sequence[Group]) -> list[str]:
    """Return for each group the labels of those whose recorded responses it uses; "" if none.

    Frozen batches are another run's batches in their order, without responses of the group's own.
    """
    labels = _labels_by_folder(groups)
    texts = []
    for group in groups:
        settings = flatten(group.runs[0].config)
        folders = map(str, settings.get("replay.from_runs") or ())
        named = dict.fromkeys(_label_of_path(folder, labels) or folder for folder in folders)
        frozen = ", frozen batches" if settings.get("replay.frozen") else ""
        texts.append(join_names(named) + frozen if named else "")
    return texts


def _labels_by_folder(groups: Iterable[Group]) -> dict[str, str]:
    """Return name of a run folder → label of its group."""
    return {run.path.name: group.label for group in groups for run in (*group.runs, *group.repeats)}


def _label_of_path(path: str, labels: dict[str, str]) -> str:
    """Return the label of the run that a path lies in, else its experiment/algorithm, else ""."""
    for folder in (Path(path), *Path(path).parents):
        if folder.name in labels:
            return labels[folder.name]
        if RUN_SUFFIX.search(folder.name):
            return experiment_and_algo(folder)
    return ""
