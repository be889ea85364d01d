"""Read run folders as `experiments.run_dir.records` writes them, and packed studies.

A run that is in progress or was interrupted is readable; its `status` says so. A damaged folder
raises RunError with one line that names the folder, the fault and the cure.

A packed study has the counts that its page and its report follow from, for the repository.
`analysis.results` writes it:

    arms.json        as in the study's folder, runs by name
    contrasts.json   the pairs that the study names
    NAME.yaml        the study
    counts.parquet   a row per run, evaluation and problem: step, temperature, main (whether it is
                     eval.temperature), and COUNT_COLUMNS
    runs.parquet     a row per run: run, arm, seed, config (config.yaml), info (run.json)
    metrics.parquet  rows of the runs' metrics.parquet at evaluated steps: budget, time, memory
    training.parquet all rows of the columns that a report draws as training curves, as float32
    turns.parquet    a row per run, evaluation and problem, COLUMNS of `analysis.turns`, of studies
                     with conversations of several turns
    SHA256SUMS       of the files above, for `sha256sum -c`

Its runs have samples that stand for the counts, from which a report computes what it computes from
run folders.
"""

from __future__ import annotations

import glob
import hashlib
import json
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, cached_property, lru_cache, wraps
from pathlib import Path
from typing import Any, NamedTuple, TypeVar
from weakref import WeakKeyDictionary

import numpy as np
import pandas as pd
import pyarrow as pa
import yaml

from analysis.pass_at_k import KS
from analysis.programs import normal_form

STATUSES = ("running", "finished", "interrupted", "failed")
FILES = ("run.json", "config.yaml", "metrics.parquet", "evals.parquet")
METRIC_COLUMNS = ("step", "reward_mean")
EVAL_COLUMNS = ("step", "problem", "sample", "verdict", "passed", "total", "program", "tokens")
TURN_COLUMNS = (  # of conversations of several turns: all of them, or none
    *("turns", "turn_verdicts", "turn_public", "turn_programs", "turn_tokens"),
    *("observations", "observation_tokens"),
)
# of a packed study
COUNTS, RUNS, METRICS = "counts.parquet", "runs.parquet", "metrics.parquet"
TRAINING, TURNS, SUMS = "training.parquet", "turns.parquet", "SHA256SUMS"
ARMS, CONTRASTS = "arms.json", "contrasts.json"
COUNT_COLUMNS = ("step", "problem", "samples", "judged", "accepted", "forms", "tokens")
UNPARSABLE = "("  # stands for an accepted program that has no normal form
Result = TypeVar("Result")


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
    # of a packed study with conversations: `analysis.turns.COLUMNS` of its evaluations
    turns: pd.DataFrame | None = None

    @property
    def status(self) -> str:
        return self.info["status"]

    @property
    def seed(self) -> int | None:
        return self.info.get("seed", self.config.get("seed"))

    @property
    def algo(self) -> str:
        name = self.section("algo").get("name", self.config.get("algo"))
        return str(self.info.get("algo") or name or "unknown")

    @property
    def name(self) -> str:
        return f"{self.path.parent.name}/{self.path.name}"

    @property
    def ks(self) -> tuple[int, ...]:
        """The k of pass@k in the run's `eval.k`."""
        return tuple(sorted(set(self.section("eval").get("k") or KS)))

    def section(self, name: str) -> dict[str, Any]:
        """Return a section of the configuration; empty if it has none."""
        section = self.config.get(name)
        return section if isinstance(section, dict) else {}

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
            several = f", several with commas between them: {key}={','.join(pattern.split())}"
            cure = f"give a folder or a quoted pattern{several * (len(pattern.split()) > 1)}"
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
    """Return the `name` of a run's configuration, else that of its parent folder.

    Of a packed study: that of its runs, else of its folder.
    """
    if is_packed(path):
        try:
            configs = pd.read_parquet(path / RUNS, columns=["config"])["config"]
            return str(parse_yaml(configs.iloc[0])["name"])
        except (OSError, ValueError, LookupError, pa.ArrowException):
            return path.name
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
    if (status := info.get("status")) not in STATUSES:
        raise _damaged(path, f"run.json has status {status!r}, not one of {', '.join(STATUSES)}")
    config = _mapping(path, "config.yaml", parse_yaml)
    # An unfinished run may have stopped before its first step or evaluation.
    required = info["status"] == "finished"
    # In a run that is in progress or was killed, the journal has later rows than metrics.parquet.
    journal = path / "metrics.jsonl"
    name = journal.name if journal.is_file() and journal.stat().st_size else "metrics.parquet"
    metrics = _table(path, name, METRIC_COLUMNS, required)
    if metrics["step"].duplicated().any():
        raise _damaged(path, f"{name} holds the same step twice")
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
        if file.suffix == ".jsonl":  # a last line without its end is a row that was being written
            lines = file.read_text(encoding="utf-8").split("\n")[:-1]
            table = pd.DataFrame(map(json.loads, lines))
        else:
            table = pd.read_parquet(file)
    except (OSError, ValueError, pa.ArrowException) as error:
        raise _damaged(path, f"{name} cannot be read ({first_line(error)})") from None
    if not len(table):  # a run that was stopped early leaves such tables, perhaps without columns
        return empty
    if missing := [column for column in columns if column not in table]:
        raise _damaged(path, f"{name} lacks the columns {', '.join(missing)}")
    return table


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


def arm_of(run: Path) -> str | None:
    """Return the arm of a run folder, by its study's arms.json; None if it is of no study."""
    entries = (e for e in _entries(run.parent, "arms.json") if e["run"])
    return {Path(entry["run"]).name: str(entry["arm"]) for entry in entries}.get(run.name)


def arm_names(groups: Sequence[Sequence[Run]]) -> list[str] | None:
    """Return a name for each group of runs; None unless each is one distinct arm of a study."""
    arms = [{arm_of(run.path) for run in runs} for runs in groups]
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
    """A pair that a study named before its runs, on one metric or on all; a - b > -margin.

    a and b are arms, or with one metric two differences of arms: (spo_old - spo), (ppo_old - ppo).
    """

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


# Packed studies.


class PackedStudy:
    """Runs of a packed study, its `arms`, and its YAML as `study`.

    Its `margin`: a difference in pass@k up to which two arms are equal; `control`: an arm that the
    others are compared with. Raises RunError if a file is missing, unreadable or not that of
    SHA256SUMS.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        if changed := changed_files(folder):
            raise RunError(
                f"{folder}: damaged packed study, {', '.join(changed)} missing or not of {SUMS}; "
                "check the folder out again, or pack the study again"
            )
        try:
            self.arms: list[dict[str, Any]] = json.loads((folder / ARMS).read_text())
            self._counts, self._runs, self._metrics, self._training = (
                pd.read_parquet(folder / name) for name in (COUNTS, RUNS, METRICS, TRAINING)
            )
            has_turns = (folder / TURNS).is_file()
            self._turns = pd.read_parquet(folder / TURNS) if has_turns else None
            self.study: dict[str, Any] = parse_yaml(study_file(folder).read_text(encoding="utf-8"))
        except (OSError, ValueError, pa.ArrowException, yaml.YAMLError) as error:
            raise RunError(f"{folder}: {first_line(error)}; pack the study again") from error

    @cached_property
    def runs(self) -> dict[str, Run]:
        """Run name → the run, with samples that stand for its counts; sorted by name."""
        rows = {str(row["run"]): row for row in self._runs.to_dict("records")}
        return {name: self._run(name, rows[name]) for name in sorted(rows)}

    def _run(self, name: str, row: dict[Any, Any]) -> Run:
        counts = self._counts[self._counts["run"] == name]
        further = counts[~counts["main"]].groupby("temperature")
        spent = _of_run(self._metrics, name).dropna(axis="columns", how="all")
        training = _of_run(self._training, name)
        # Each run recorded a reward, NaN where no response was its own; others not every column.
        recorded = training.columns[training.notna().any() | (training.columns == "reward_mean")]
        others = [column for column in spent if column == "step" or column not in recorded]
        metrics = training[recorded].merge(spent[others], how="outer", on="step", sort=True)
        return Run(
            path=(self.folder / name).resolve(),
            config=parse_yaml(row["config"]),
            info=json.loads(row["info"]),
            metrics=metrics.reset_index(drop=True),
            evals=stand_in_samples(counts[counts["main"]]),
            further_evals={float(t): stand_in_samples(c) for t, c in further},  # type: ignore[arg-type]
            packed=True,
            turns=None if self._turns is None else _of_run(self._turns, name),
        )


def _of_run(table: pd.DataFrame, name: str) -> pd.DataFrame:
    return table[table["run"] == name].drop(columns="run")


# Files and their digests.


def sums(folder: Path, files: Iterable[str]) -> dict[str, str]:
    """Return file → SHA-256, for those of the files that are there."""
    return {
        file: hashlib.sha256((folder / file).read_bytes()).hexdigest()
        for file in files
        if (folder / file).is_file()
    }


def changed_files(folder: Path) -> list[str]:
    """Return the files of a packed study that are not those of its SHA256SUMS.

    Raises RunError as `study_file`.
    """
    if not (folder / SUMS).is_file():
        return [SUMS]
    lines = (folder / SUMS).read_text().splitlines()
    recorded = {file: digest for digest, _, file in (line.partition("  ") for line in lines)}
    expected = {COUNTS, RUNS, METRICS, TRAINING, ARMS, CONTRASTS, study_file(folder).name}
    now = sums(folder, recorded)
    return sorted(f for f in recorded.keys() | expected if recorded.get(f, "") != now.get(f))


def study_file(folder: Path) -> Path:
    """Return the study's YAML in a packed study. Raises RunError if it is not exactly one."""
    files = sorted(folder.glob("*.yaml"))
    if len(files) != 1:
        raise RunError(f"{folder}: {len(files)} studies (*.yaml) in place of one; pack it again")
    return files[0]


# Samples as counts, and back. pass@k and the metrics of distinct programs depend on an evaluation
# only through these numbers for each problem; programs, and metrics of their text, are lost.


def count_samples(evals: pd.DataFrame) -> pd.DataFrame:
    """Return COUNT_COLUMNS of evaluation samples: a row for each step and problem.

    `judged`: without INFRA_ERROR; `tokens`: of judged samples. `forms`: the sizes of the classes of
    equal normal forms among accepted programs, in the order of their first appearance, as
    "12 3 1"; programs that cannot be parsed are in none.
    """
    judged, accepted = evals["verdict"] != "INFRA_ERROR", evals["verdict"] == "ACCEPTED"
    forms = evals["program"].where(accepted).map(normal_form, na_action="ignore")
    columns = {"judged": judged, "accepted": accepted, "tokens": evals["tokens"] * judged}
    cells = evals[["step", "problem"]].assign(**columns, forms=forms, samples=1)
    sizes = {"forms": lambda forms: " ".join(map(str, Counter(forms.dropna()).values()))}
    numbers = dict.fromkeys(("samples", "judged", "accepted", "tokens"), "sum") | sizes
    table = cells.groupby(["step", "problem"], sort=False).agg(numbers).reset_index()
    return table[list(COUNT_COLUMNS)]


def stand_in_samples(counts: pd.DataFrame) -> pd.DataFrame:
    """Return samples that have the counts, with columns step, problem, sample, verdict, program.

    The programs of class i are the constant i: constants have different normal forms, and a single
    token has no pair of tokens for distinct-2. Raises ValueError for counts that no samples have.
    """
    columns = (counts[name] for name in ("samples", "judged", "accepted", "forms"))
    cells = [_samples(*numbers) for numbers in zip(*columns, strict=True)]
    samples = counts["samples"].to_numpy()
    first = np.repeat(samples.cumsum() - samples, samples)  # of each sample's cell
    return pd.DataFrame(
        {
            "step": np.repeat(counts["step"].to_numpy(), samples),
            "problem": np.repeat(counts["problem"].to_numpy(object), samples),
            "sample": np.arange(samples.sum()) - first,
            "verdict": np.array([verdict for cell in cells for verdict, _ in cell], object),
            "program": np.array([program for cell in cells for _, program in cell], object),
        }
    )


@lru_cache(maxsize=1 << 14)
def _samples(samples: int, judged: int, accepted: int, forms: str) -> list[tuple[str, str]]:
    """Return (verdict, program) of each sample of a problem; the cells of a study repeat."""
    sizes = [int(size) for size in forms.split()]
    if not 0 <= sum(sizes) <= accepted <= judged <= samples or min(sizes, default=1) < 1:
        raise ValueError(f"{samples} samples, {judged} judged, {accepted} accepted, forms {sizes}")
    return [
        *(("ACCEPTED", str(number)) for number, size in enumerate(sizes) for _ in range(size)),
        *[("ACCEPTED", UNPARSABLE)] * (accepted - sum(sizes)),
        *[("WRONG_ANSWER", "")] * (judged - accepted),
        *[("INFRA_ERROR", "")] * (samples - judged),
    ]


# What is computed of a run, kept as long as the run.


def memoize(function: Callable[..., Result]) -> Callable[..., Result]:
    """Cache `function(owner, *arguments)` for as long as `owner` (or an equal object) is alive.

    `functools.cache` would keep every run of a report, with its samples, to the report's end.
    """
    results: WeakKeyDictionary[Any, dict[tuple[Any, ...], Result]] = WeakKeyDictionary()

    @wraps(function)
    def memoized(owner: Any, *arguments: Any) -> Result:
        by_arguments = results.setdefault(owner, {})
        if arguments not in by_arguments:
            by_arguments[arguments] = function(owner, *arguments)
        return by_arguments[arguments]

    return memoized
