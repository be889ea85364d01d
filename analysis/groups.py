"""Sort runs into groups that differ in nothing but their seed, label them, and score their models.

Only such runs may be averaged. Any other difference in their configurations makes another group,
and the label shows it. The evaluated models of a comparison are the base models, and each group at
its last evaluation.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from analysis import metrics
from analysis.pass_at_k import KS
from analysis.runs import Run, arm_names
from envs.command_line import leaves

Settings = dict[str, Any]  # dotted key → value

# Keys that name, place, display or measure a run without changing what it learns.
IGNORED_KEYS = frozenset(
    (
        *("seed", "output_dir", "name", "logger", "tuned", "eval.k", "eval.kl_samples"),
        "eval.further_temperatures",  # the main evaluation is the same
        *("runtime.overlap", "model.checkpoint_activations"),  # time and memory
        *("train.keep_samples", "train.keep_best"),  # what a run folder keeps
        *("train.keep_checkpoints", "train.checkpoint_every"),
    )
)
RUN_SUFFIX = re.compile(r"-s\d+-\d{8}-\d{6}(-\d+)?$")  # of a run folder, after its algorithm


@dataclass(frozen=True)
class Group:
    """Runs with the same settings, one per seed; `repeats` are further runs of the same seeds."""

    label: str
    settings: Settings
    runs: tuple[Run, ...]
    repeats: tuple[Run, ...] = ()

    @cached_property
    def last_step(self) -> int:
        """The latest step at which any run was evaluated; 0 if none was."""
        return max((run.evaluated_steps[-1] for run in self.runs if run.evaluated_steps), default=0)

    @cached_property
    def complete(self) -> tuple[Run, ...]:
        """The runs evaluated at `last_step`, which the final numbers average."""
        return tuple(run for run in self.runs if self.last_step in run.evaluated_steps)


def settings_of(run: Run) -> Settings:
    """Return the settings that determine a run's results, plus the hash of its data.

    Keys in IGNORED_KEYS are dropped, and so are paths inside the run's own output folder. Of the
    runs whose samples it replays, experiment and algorithm stay; seed and time do not.
    """
    home = str(run.config.get("output_dir") or run.path)
    settings = {
        key: value
        for key, value in leaves(run.config)
        if value != {}
        and not IGNORED_KEYS & {key, key.split(".")[0]}
        and not (isinstance(value, str) and value.startswith((home + "/", str(run.path))))
    }
    if source_runs := settings.get("replay.from_runs"):
        folders = (Path(run) for run in source_runs)
        settings["replay.from_runs"] = [
            f"{folder.parent.name}/{RUN_SUFFIX.sub('', folder.name)}" for folder in folders
        ]
    return settings | {"data_hash": run.info.get("data_hash")}


def group_runs(runs: Sequence[Run]) -> list[Group]:
    """Group runs by settings: groups sorted by label, the runs in each by seed.

    Groups that are the arms of a study are labelled with the arms' names.
    """
    # A run that stopped before it read its data joins the runs whose other settings are the same.
    key_without_hash = {
        _settings_key(run, ignored="data_hash"): _settings_key(run)
        for run in runs
        if _data_hash(run)
    }
    by_settings: dict[str, list[Run]] = {}
    for run in runs:
        key = _settings_key(run)
        if not _data_hash(run):
            key = key_without_hash.get(_settings_key(run, ignored="data_hash"), key)
        by_settings.setdefault(key, []).append(run)
    for members in by_settings.values():
        members.sort(key=lambda run: _data_hash(run) is None)
    groups = [_one_per_seed(settings_of(members[0]), members) for members in by_settings.values()]
    for algo in {group.runs[0].algo for group in groups}:
        places = [i for i, group in enumerate(groups) if group.runs[0].algo == algo]
        labels = _labels(algo, [groups[i] for i in places])
        for i, label in zip(places, labels, strict=True):
            groups[i] = replace(groups[i], label=label)
    if arms := arm_names([group.runs for group in groups]):
        groups = [replace(group, label=arm) for group, arm in zip(groups, arms, strict=True)]
    return sorted(groups, key=lambda group: natural_sort_key(group.label))


def _labels(algo: str, groups: Sequence[Group]) -> list[str]:
    """Label an algorithm's groups; one without any evaluation changes no label of the others."""
    labels = distinct_labels(algo, [group.settings for group in groups])
    shown = [i for i, group in enumerate(groups) if any(run.evaluated_steps for run in group.runs)]
    if len(shown) in (0, len(groups)):
        return labels
    among_shown = distinct_labels(algo, [groups[i].settings for i in shown])
    for i, label in zip(shown, among_shown, strict=True):
        labels[i] = label
    return [
        f"{label} (no evaluation)" if i not in shown and label in among_shown else label
        for i, label in enumerate(labels)
    ]


def _data_hash(run: Run) -> str | None:
    return run.info.get("data_hash")


def _settings_key(run: Run, ignored: str | None = None) -> str:
    settings = {k: canonical_json(v) for k, v in settings_of(run).items() if k != ignored}
    return json.dumps([run.algo, settings], sort_keys=True)


def _one_per_seed(settings: Settings, runs: Sequence[Run]) -> Group:
    """Keep the run of each seed that got furthest; of equals, the latest."""

    def progress(run: Run) -> tuple[int, bool, str]:
        last = run.evaluated_steps[-1] if run.evaluated_steps else -1
        return last, run.status == "finished", str(run.info.get("started") or "")

    best = {run.seed: run for run in sorted(runs, key=progress)}
    chosen = sorted(best.values(), key=lambda run: (str(type(run.seed)), run.seed))
    return Group("", settings, tuple(chosen), tuple(run for run in runs if run not in chosen))


# Labels for variants of one thing, made of the settings in which they differ.

IN_TWO_SECTIONS = ("turns",)  # which say different things: trained in, and evaluated in
LONGEST = 48  # characters of a label that still names every difference
LONGEST_VALUE = 24
# Sections whose settings say most about a variant, in the order in which a label names them.
LABEL_SECTIONS = ("algo", "train", "task", "model", "eval", "steps")
MACHINE_KEYS = ("micro_batch", "micro_tokens", "threads", "device", "dtype")


def distinct_labels(name: str, variants: Sequence[Settings]) -> list[str]:
    """Return a distinct label `name key=value …` for each variant of `name`.

    A label names all keys in which the variants differ, by their last part where it is unique. If
    that makes a label longer than LONGEST, labels name the fewest keys that separate the variants
    and cut long values.  A key that a variant lacks is not in its label.
    """
    every = sorted({key for variant in variants for key in variant})
    differing = (key for key in every if len({_canonical_value(v, key) for v in variants}) > 1)
    keys = sorted(differing, key=_label_order)  # absence counts as a value
    labels = [_label(name, variant, keys) for variant in variants]
    if all(len(label) <= LONGEST for label in labels) and len(set(labels)) == len(labels):
        return labels
    keys = _fewest_separating(variants, keys)
    labels = [_label(name, variant, keys, LONGEST_VALUE) for variant in variants]
    return [
        label if labels.count(label) == 1 else f"{label} #{labels[: i + 1].count(label)}"
        for i, label in enumerate(labels)
    ]


def _label(name: str, variant: Settings, keys: Sequence[str], longest: int | None = None) -> str:
    last_parts = {key: key.rpartition(".")[2] for key in keys}
    all_parts = list(last_parts.values())
    names = {
        key: part if all_parts.count(part) == 1 and part not in IN_TWO_SECTIONS else key
        for key, part in last_parts.items()
    }
    settings = [
        f"{names[key]}={cut(as_text(variant[key]), longest)}" for key in keys if key in variant
    ]
    return " ".join([name, *settings])


def cut(text: str, longest: int | None) -> str:
    """Shorten a text: keep the end of a path, the beginning of anything else."""
    if longest is None or len(text) <= longest:
        return text
    return f"…{text[1 - longest :]}" if "/" in text else f"{text[: longest - 1]}…"


def _label_order(key: str) -> tuple[int, str]:
    """Sort what is trained, and how, before where it ran."""
    section, _, last_part = key.partition(".")
    minor = last_part in MACHINE_KEYS or section not in LABEL_SECTIONS
    return len(LABEL_SECTIONS) if minor else LABEL_SECTIONS.index(section), key


def _fewest_separating(variants: Sequence[Settings], keys: Sequence[str]) -> list[str]:
    """Return the first of `keys` that separate the variants, without redundant ones."""

    def separated(chosen: Sequence[str]) -> int:
        return len({tuple(_canonical_value(v, key) for key in chosen) for v in variants})

    chosen: list[str] = []
    for key in keys:
        if separated([*chosen, key]) > separated(chosen):
            chosen.append(key)
    for key in reversed(chosen):
        others = [other for other in chosen if other != key]
        if separated(others) == separated(chosen):
            chosen = others
    return chosen


def _canonical_value(variant: Settings, key: str) -> str | None:
    return canonical_json(variant[key]) if key in variant else None


def natural_sort_key(label: str) -> list[tuple[float, str]]:
    """Return a sort key by which 5 comes before 20."""
    parts = re.split(r"((?<![\w.])\d+(?:\.\d+)?(?:e[-+]?\d+)?)", label)
    return [(float(part), "") if i % 2 else (0.0, part) for i, part in enumerate(parts)]


def canonical_json(value: Any) -> str:
    """Return a text that is equal for equal settings: 1 equals 1.0, but not true."""
    return json.dumps(float(value) if type(value) is int else value, sort_keys=True, default=str)


def as_text(value: Any) -> str:
    """Return a value from config.yaml or run.json as one would type or say it."""
    if value is None or isinstance(value, bool):
        return json.dumps(value)
    if isinstance(value, dict):
        return ", ".join(f"{key} {as_text(inner)}" for key, inner in value.items()) or "none"
    if isinstance(value, list):
        return f"[{','.join(map(as_text, value))}]"
    return f"{value:g}" if isinstance(value, float) else str(value)


def join_names(names: Iterable[str], most: int = 6) -> str:
    """Return "a, b and c"; beyond `most`, only the number of the others."""
    names = list(names)
    shown = names[:most] + ([f"{len(names) - most} more"] if len(names) > most else [])
    return shown[0] if len(shown) == 1 else f"{', '.join(shown[:-1])} and {shown[-1]}"


# Settings of groups: those that all share, and those that differ.

NOTHING = "–"


def settings_table(groups: Sequence[Group]) -> pd.DataFrame:
    """Return settings.csv: group, setting, value, for all settings that can change a result."""
    rows = [
        (group.label, key, as_text(value))
        for group in groups
        for key, value in sorted(group.settings.items())
    ]
    return pd.DataFrame(rows, columns=["group", "setting", "value"])


def differing_settings(groups: Sequence[Group]) -> pd.DataFrame:
    """Return the settings in which groups differ, a row per setting and a column per group.

    A setting of an algorithm differs only between the groups that have it.
    """
    table = settings_table(groups).pivot(index="setting", columns="group", values="value")
    own = table.index.str.startswith("algo.")
    differ = table.nunique(axis=1, dropna=False).where(~own, table.nunique(axis=1)) > 1
    return table.loc[differ, [group.label for group in groups]].fillna(NOTHING)


def shared_facts(groups: Sequence[Group]) -> list[tuple[str, str]]:
    """Return the settings of model, task and evaluation that all groups share."""
    table = settings_table(groups).groupby("setting")["value"].agg(["first", "nunique", "size"])
    shared = table[(table["nunique"] == 1) & (table["size"] == len(groups))]["first"]
    facts = ((str(key), str(text)) for key, text in shared.items())
    return [(key, text) for key, text in facts if key.startswith(("model", "task", "eval"))]


# Evaluated models.

# Sections that determine a base model's evaluation: its model, problems, sampling and judge …
BASE_SECTIONS = ("model", "task", "eval", "judge", "data_hash")
# … and the keys among them that do not affect the evaluation at step 0.
NOT_OF_BASE = ("eval.every", "eval.final", "task.reward", "model.adapter")  # a new one adds 0


class GroupScores(NamedTuple):
    """Scores of a group to compare: its label, the seeds of its runs, and metric → scores."""

    label: str
    seeds: tuple[int | None, ...]
    grids: Mapping[str, metrics.ScoreGrid]


@dataclass(frozen=True)
class EvaluatedModel:
    """A row of the result table: a base model, or a group at its last evaluation.

    `scores` has `analysis.metrics.scores` of each run; of a packed one, those that follow
    from counts.
    """

    label: str
    step: int
    runs: tuple[Run, ...]
    ks: tuple[int, ...]
    scores: list[dict[str, metrics.ProblemScores]] = field(compare=False)

    @property
    def is_base(self) -> bool:
        return self.step == 0

    @property
    def seeds(self) -> tuple[int | None, ...]:
        return tuple(run.seed for run in self.runs)

    @cached_property
    def grids(self) -> dict[str, metrics.ScoreGrid]:
        """Metric → its scores (seeds, problems)."""
        return metrics.stack_seeds(self.seeds, self.scores)

    def problems_defined(self, metric: str) -> list[int]:
        """Return the number of problems on which the metric is defined, for each run."""
        return [len(s[metric].values) if metric in s else 0 for s in self.scores]

    @cached_property
    def counts(self) -> list[pd.DataFrame]:
        """`analysis.metrics.verdict_counts` of each run."""
        return [metrics.counts_at_step(run, self.step) for run in self.runs]

    def counts_of(self, metric: str) -> list[pd.DataFrame]:
        """Return `counts` at the temperature of a metric; empty for a run without it."""
        for temperature in self.temperatures:
            if metric.endswith(metrics.at_temperature("", temperature)):
                further = zip(self.further_samples, self.samples, strict=True)
                return [
                    metrics.verdict_counts(own.get(temperature, main[:0])) for own, main in further
                ]
        return self.counts

    @cached_property
    def sample_counts(self) -> list[int]:
        """The most samples of a problem, for each run."""
        return [samples_per_problem(samples) for samples in self.samples]

    @cached_property
    def samples(self) -> list[pd.DataFrame]:
        """The samples of the evaluation, one frame per run."""
        return [run.evaluation(self.step) for run in self.runs]

    @cached_property
    def further_samples(self) -> list[dict[float, pd.DataFrame]]:
        """Further temperature → the samples of the evaluation, one mapping per run."""
        return [run.further_evaluations(self.step) for run in self.runs]

    @cached_property
    def difficulties(self) -> dict[str, str]:
        """Problem → its difficulty, "" if unknown; of the runs that recorded it."""
        first = (part.drop_duplicates("problem") for part in self.samples if "difficulty" in part)
        pairs = (zip(one["problem"], one["difficulty"].fillna(""), strict=True) for one in first)
        return {problem: difficulty for of_run in pairs for problem, difficulty in of_run}

    @property
    def temperatures(self) -> tuple[float, ...]:
        """The further temperatures at which any of the runs was evaluated."""
        return tuple(sorted({t for by_temperature in self.further_samples for t in by_temperature}))


ScoredGroup = EvaluatedModel | GroupScores


def common_problems(models: Sequence[EvaluatedModel], metric: str) -> frozenset[str]:
    """Return the problems on which the metric is defined for all trained models, in some seed."""
    common: set[str] | None = None
    for grid in (model.grids.get(metric) for model in models if not model.is_base):
        columns = np.flatnonzero(grid.weights.sum(axis=0)) if grid else ()
        defined = {grid.problems[column] for column in columns} if grid else set()
        common = defined if common is None else common & defined
    return frozenset(common or ())


def evaluated_models(groups: Sequence[Group], ks: Sequence[int] = KS) -> list[EvaluatedModel]:
    """Return the base models, then each group at its last evaluation after training.

    There is one base for each model, task, evaluation and judge.
    """
    trained = [(g.label, g.last_step, g.complete) for g in groups if g.last_step > 0]
    evaluations = [*_base_evaluations(groups), *trained]
    pairs = [(run, step) for _, step, runs in evaluations for run in runs]
    samples = [run.evaluation(step) for run, step in pairs]
    further = [run.further_evaluations(step) for run, step in pairs]
    scored = metrics.scores_at_temperatures(samples, further, ks)
    scores = iter(
        {name: score for name, score in found.items() if not run.packed or metrics.is_counted(name)}
        for (run, _), found in zip(pairs, scored, strict=True)
    )
    return [
        EvaluatedModel(label, step, runs, tuple(ks), list(islice(scores, len(runs))))
        for label, step, runs in evaluations
    ]


def _base_evaluations(groups: Sequence[Group]) -> list[tuple[str, int, tuple[Run, ...]]]:
    """Return label, step 0 and runs of each base; one run stands for all of a seed."""
    bases: dict[str, tuple[Settings, dict[int | None, Run]]] = {}
    for run in (run for group in groups for run in group.runs if 0 in run.evaluated_steps):
        settings = base_settings(run)
        by_seed = bases.setdefault(base_key(run), (settings, {}))[1]
        known = by_seed.get(run.seed)
        # Of runs that share a base's samples, one with all further temperatures stands for them.
        if not known or len(known.further_evaluations(0)) <= len(run.further_evaluations(0)):
            by_seed[run.seed] = run
    variants = [settings for settings, _ in bases.values()]
    models = [{k: v for k, v in one.items() if k.startswith("model.")} for one in variants]
    unplaced = [{k: v for k, v in one.items() if k != "model.path"} for one in models]
    if len(set(map(canonical_json, unplaced))) == len(set(map(canonical_json, models))):
        # The path says nothing that the other keys of the model do not say.
        variants = [{k: v for k, v in one.items() if k != "model.path"} for one in variants]
    names = [{"model.name": settings.get("model.name")} for settings in variants]
    if len({str(name) for name in names}) == len(names):
        variants = names  # they say most, and other keys differ with them
    labels = distinct_labels("base", variants)
    by_label = zip(labels, (tuple(by_seed.values()) for _, by_seed in bases.values()), strict=True)
    evaluations = [(label, 0, runs) for label, runs in by_label]
    return sorted(evaluations, key=lambda evaluation: natural_sort_key(evaluation[0]))


def base_settings(run: Run) -> Settings:
    """Return the settings, other than the seed, that determine the evaluation at step 0."""
    configured = {
        key: value
        for key, value in settings_of(run).items()
        if key.split(".")[0] in BASE_SECTIONS and not key.startswith(NOT_OF_BASE)
    }
    judge = {key: run.info.get(key) for key in ("judge_version", "sandbox")}
    # A run whose evaluations alone have turns shares its base with one that trains with them.
    turns = configured.pop("task.turns", None)
    if turns is not None or configured.get("eval.turns") is not None:
        configured["eval.turns"] = configured.get("eval.turns") or turns
    return configured | dict(leaves(judge))


def base_key(run: Run) -> str:
    """Return a text that is equal for runs with the same base."""
    settings = base_settings(run)
    return canonical_json({name: canonical_json(value) for name, value in settings.items()})


def spoken(label: str) -> str:
    """Return a label for readers: "base name=nano" is "base nano"."""
    return label.replace("base name=", "base ", 1) if label.startswith("base name=") else label


def common_ks(runs: Sequence[Run]) -> tuple[tuple[int, ...], list[str]]:
    """Return the k of pass@k that all runs have in `eval.k` and enough samples for, and notes.

    A note names the k that are left out. Without a common k, the result is k = 1.
    """
    evaluated = [(run.ks, samples_per_problem(run.evals)) for run in runs if len(run.evals)]
    wanted = sorted({k for ks, _ in evaluated for k in ks})
    common = [k for k in wanted if all(k in ks and k <= most for ks, most in evaluated)]
    left = join_names([f"pass@{k}" for k in wanted if k not in common] or [""])
    why = "not all runs have it in eval.k and as many samples per problem"
    return tuple(common) or (1,), [f"{left} is left out: {why}."] if left else []


def samples_per_problem(samples: pd.DataFrame) -> int:
    """Return the most samples that a problem has in one evaluation."""
    problem, _ = pd.factorize(samples["problem"])
    step, steps = pd.factorize(samples["step"])
    return int(np.bincount(problem * len(steps) + step).max())
