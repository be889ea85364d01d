"""Read run folders as `experiments.run_dir.records` writes them, complete, partial or damaged.

A run that is in progress or was interrupted is readable; its `status` says so. A damaged folder
raises RunError with one line that names the folder, the fault and the cure.
"""

from __future__ import annotations

import glob
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import pyarrow as pa
import yaml

from analysis.pass_at_k import KS

STATUSES = ("running", "finished", "interrupted", "failed")
FILES = ("run.json", "config.yaml", "metrics.parquet", "evals.parquet")
METRIC_COLUMNS = ("step", "reward_mean")
EVAL_COLUMNS = ("step", "problem", "sample", "verdict", "passed", "total", "program", "tokens")
TURN_COLUMNS = (  # of conversations of several turns: all of them, or none
    *("turns", "turn_verdicts", "turn_public", "turn_programs", "turn_tokens"),
    *("observations", "observation_tokens"),
)
COUNTS, SUMS = "counts.parquet", "SHA256SUMS"  # of a packed study (analysis.packed)


class RunError(Exception):
    """An unreadable run folder, or a search without a result; one line that names the cure."""


@dataclass(frozen=True, eq=False)
class Run:
    """One run folder in memory; `config` and `info` hold config.yaml and run.json."""

    path: Path
    config: dict[str, Any]
    info: dict[str, Any]
    metrics: pd.DataFrame  # one row per training step, sorted by step
    evals: pd.DataFrame  # one row per evaluation sample, sorted by step
    # temperature → the same, of evaluations at eval.further_temperatures
    further_evals: Mapping[float, pd.DataFrame] = field(default_factory=dict)
    # of a packed study: samples stand for counts, and what was spent is known at evaluations only
    packed: bool = False
    # of a packed study with conversations: `analysis.conversations.COLUMNS` of its evaluations
    turns: pd.DataFrame | None = None

    @property
    def status(self) -> str:
        return self.info["status"]

    @property
    def seed(self) -> int | None:
        return self.info.get("seed", self.config.get("seed"))

    @property
    def algo(self) -> str:
        section = self.config.get("algo")
        name = section.get("name") if isinstance(section, dict) else section
        return str(self.info.get("algo") or name or "unknown")

    @property
    def name(self) -> str:
        return f"{self.path.parent.name}/{self.path.name}"

    @property
    def ks(self) -> tuple[int, ...]:
        """The k of pass@k in the run's `eval.k`."""
        section = self.config.get("eval")
        configured = section.get("k") if isinstance(section, dict) else None
        return tuple(sorted(set(configured or KS)))

    @property
    def on_training_problems(self) -> bool:
        """Whether the run trained on the problems that it was evaluated on (`eval.split=train`)."""
        section = self.config.get("eval")
        split = section.get("split") if isinstance(section, dict) else None
        return split == "train" and bool(self.config.get("steps"))

    def evaluation(self, step: int) -> pd.DataFrame:
        """Return the samples of the evaluation at `step`; `evals` is sorted by step."""
        return _at_step(self.evals, step)

    def further_evaluations(self, step: int) -> dict[float, pd.DataFrame]:
        """Return temperature → the samples at `step`, for the further temperatures with any."""
        samples = {t: _at_step(evals, step) for t, evals in self.further_evals.items()}
        return {t: evals for t, evals in samples.items() if len(evals)}

    def prompts(self) -> dict[str, str]:
        """Return problem → prompt; empty if the run folder has no prompts."""
        table = _table(self.path, "problems.parquet", ("problem", "prompt"), required=False)
        return dict(zip(table["problem"], table["prompt"], strict=True))

    @cached_property
    def trained_steps(self) -> np.ndarray:
        return self.metrics["step"].to_numpy()

    @cached_property
    def evaluated_steps(self) -> list[int]:
        return sorted(int(step) for step in self.evals["step"].unique())


def find_runs(patterns: Iterable[str | Path], key: str = "runs") -> list[Path]:
    """Return all run folders and packed studies at or below these folders or glob patterns.

    They are sorted and unique. A run folder is one that holds any of FILES. Raises RunError for a
    pattern that matches nothing and if there is none of both. `key`: the command's, for the
    message.
    """
    texts = [str(pattern) for pattern in patterns]
    found: set[Path] = set()
    for pattern in texts:
        folders = [Path(p) for p in glob.glob(pattern, recursive=True) if Path(p).is_dir()]
        if not folders:
            parts = pattern.split()
            cure = "give a folder or a quoted pattern"
            if len(parts) > 1:
                cure = f"several have commas between them: {key}={','.join(parts)}"
            raise RunError(f"{key}={pattern}: no such folder; {cure}")
        for folder in folders:
            found.update(path.resolve() for path in _runs_below(folder))
    if not found:
        raise RunError(
            f"{key}={','.join(texts)}: no run folder in there; make one with `python run.py`"
        )
    return sorted(found)


def _runs_below(folder: Path) -> list[Path]:
    if is_packed(folder) or any((folder / name).exists() for name in FILES):
        return [folder]
    subfolders = [p for p in folder.iterdir() if p.is_dir() and not p.name.startswith(".")]
    return [run for subfolder in subfolders for run in _runs_below(subfolder)]


def is_packed(folder: Path) -> bool:
    """Whether a folder holds a packed study, not a run; also if its counts are missing."""
    return (folder / COUNTS).is_file() or (folder / SUMS).is_file()


def experiment_of(path: Path) -> str:
    """Return the `name` of a run's configuration, else that of its parent folder."""
    try:
        name = _mapping(path, "config.yaml", parse_yaml).get("name")
    except RunError:
        name = None
    return str(name or path.parent.name)


# Reading.


def load_run(path: str | Path) -> Run:
    """Read one run folder. Raises RunError if it is damaged, incomplete or no run folder."""
    path = Path(path)
    if not path.is_dir() or is_packed(path):
        raise RunError(f"{path}: no run folder (a packed study is read by its report alone)")
    info = _mapping(path, "run.json", json.loads)
    if info.get("status") not in STATUSES:
        statuses = ", ".join(STATUSES)
        raise _damaged(path, f"run.json has status {info.get('status')!r}, not one of {statuses}")
    config = _mapping(path, "config.yaml", parse_yaml)
    # An unfinished run may have stopped before its first step or evaluation.
    required = info["status"] == "finished"
    metrics = _unmerged_metrics(path)
    if metrics is None:
        metrics = _table(path, "metrics.parquet", METRIC_COLUMNS, required)
    if metrics["step"].duplicated().any():
        raise _damaged(path, "metrics.parquet holds the same step twice")
    evals = _evals(path, "evals.parquet", EVAL_COLUMNS, required)
    section = config.get("eval")
    required &= bool(isinstance(section, dict) and section.get("further_temperatures"))
    further = _evals(path, "further_evals.parquet", ("temperature", *EVAL_COLUMNS), required)
    temperatures = sorted(further["temperature"].unique())
    return Run(
        path=path.resolve(),
        config=config,
        info=info,
        metrics=metrics.sort_values("step"),
        evals=evals,
        further_evals={float(t): further[further["temperature"] == t] for t in temperatures},
    )


def _evals(path: Path, name: str, columns: tuple[str, ...], required: bool) -> pd.DataFrame:
    """Return a table of evaluation samples, sorted by step."""
    evals = _table(path, name, columns, required)
    keys = [key for key in ("temperature", "step", "problem", "sample") if key in columns]
    if evals.duplicated(keys).any():
        raise _damaged(path, f"{name} holds the same {', '.join(keys)} twice")
    if missing := [c for c in TURN_COLUMNS if (c in evals) != (TURN_COLUMNS[0] in evals)]:
        raise _damaged(path, f"{name} has some columns of turns and not {', '.join(missing)}")
    evals["program"] = evals["program"].fillna("")
    ordered = evals["step"].is_monotonic_increasing
    return evals if ordered else evals.sort_values("step", kind="stable")


def _at_step(evals: pd.DataFrame, step: int) -> pd.DataFrame:
    first, end = evals["step"].searchsorted([step, step + 1])
    return evals.iloc[first:end]


def _damaged(path: Path, fault: str) -> RunError:
    return RunError(
        f"{path}: {fault}; move the folder away or run it again, or leave out what is damaged "
        "with skip_damaged=true"
    )


def _mapping(path: Path, name: str, parse: Callable[[str], Any]) -> dict[str, Any]:
    try:
        content = parse((path / name).read_text(encoding="utf-8"))
    except (OSError, ValueError, yaml.YAMLError) as error:
        raise _damaged(path, f"{name} cannot be read ({first_line(error)})") from None
    if not isinstance(content, dict):
        raise _damaged(path, f"{name} is empty or not a mapping")
    return content


def parse_yaml(text: str) -> Any:
    """Return the content of YAML, by the fast parser where there is one."""
    return yaml.load(text, getattr(yaml, "CSafeLoader", yaml.SafeLoader))


def _table(path: Path, name: str, columns: tuple[str, ...], required: bool) -> pd.DataFrame:
    file = path / name
    empty = pd.DataFrame(columns=list(columns))
    empty = empty.astype({"step": "int64"}) if "step" in columns else empty
    if not file.is_file() and not (file.is_dir() and any(file.glob("[!.]*.parquet"))):
        if required:
            raise _damaged(path, f"the run is finished but {name} is missing")
        return empty
    try:
        table = pd.read_parquet(file)
    except (OSError, ValueError, pa.ArrowException) as error:
        raise _damaged(path, f"{name} cannot be read ({first_line(error)})") from None
    # A run that was stopped early leaves tables without rows, perhaps also without columns.
    return _with_columns(path, name, table, columns) if len(table) else empty


def _with_columns(
    path: Path, name: str, table: pd.DataFrame, columns: tuple[str, ...]
) -> pd.DataFrame:
    if missing := [column for column in columns if column not in table]:
        raise _damaged(path, f"{name} lacks the columns {', '.join(missing)}")
    return table


def _unmerged_metrics(path: Path) -> pd.DataFrame | None:
    """Return the rows of metrics.jsonl; None if the run has merged them or has none.

    In a run that is in progress or was killed it has later rows than metrics.parquet.
    """
    try:
        # A last line without its end is a row that was being written.
        lines = (path / "metrics.jsonl").read_text(encoding="utf-8").split("\n")[:-1]
        rows = [json.loads(line) for line in lines]
    except FileNotFoundError:
        return None
    except ValueError as error:
        raise _damaged(path, f"metrics.jsonl cannot be read ({first_line(error)})") from None
    table = pd.DataFrame(rows)
    return _with_columns(path, "metrics.jsonl", table, METRIC_COLUMNS) if rows else None


def first_line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0].rstrip(" .:")


# What a study left beside its runs: the arms' names in arms.json, its pairs in contrasts.json.


@cache
def _entries(folder: Path, name: str) -> list[dict[str, Any]]:
    """Return the entries of arms.json or contrasts.json; none without a readable file."""
    try:
        return list(json.loads((folder / name).read_text()))
    except (OSError, ValueError, TypeError):
        return []


def arm_names(groups: Sequence[Sequence[Run]]) -> list[str] | None:
    """Return a name for each group of runs; None unless each is one distinct arm of a study."""

    def arm(run: Run) -> str | None:
        entries = (e for e in _entries(run.path.parent, "arms.json") if e["run"])
        return {Path(entry["run"]).name: str(entry["arm"]) for entry in entries}.get(run.path.name)

    arms = [set(map(arm, runs)) for runs in groups]
    names = [name for (name, *others) in arms if name and not others]
    return names if len(set(names)) == len(groups) else None


def runs_of_arms(folder: Path) -> dict[str, set[str]]:
    """Return arm → the names of its runs, without the short runs of a `choice`.

    `folder` is that of a study or of a packed one. Raises RunError without a readable arms.json.
    """
    runs: dict[str, set[str]] = {}
    for entry in _entries(folder, "arms.json"):
        if not entry["trial"]:
            named = runs.setdefault(str(entry["arm"]), set())
            named.update({Path(entry["run"]).name} if entry["run"] else ())
    if not runs:
        raise RunError(
            f"study={folder}: no readable arms.json; give the folder of a study that has ended, "
            "outputs/study-NAME, or a packed one"
        )
    return runs


class Contrast(NamedTuple):
    """A pair that a study named before its runs, on one metric or on all; a - b > -margin."""

    a: str
    b: str
    metric: str | None = None
    margin: float = 0.0


def contrasts_of(runs: Sequence[Run]) -> list[Contrast]:
    """Return the contrasts of the studies that these runs belong to, in order."""
    folders = dict.fromkeys(run.path.parent for run in runs)
    entries = [entry for folder in folders for entry in _entries(folder, "contrasts.json")]
    contrasts = (
        Contrast(str(e["a"]), str(e["b"]), e["metric"], float(e["margin"] or 0)) for e in entries
    )
    return list(dict.fromkeys(contrasts))
