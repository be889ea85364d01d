"""Pack a study: counts of its finished runs for the repository, and an archive of slim run folders.

The files are described in analysis/packed.py.
"""

from __future__ import annotations

import json
import tarfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from analysis.packed import ARMS, CONTRASTS, METRICS, RUNS, TRAINING, TURNS, sums
from analysis.runs import COUNTS, SUMS
from experiments.errors import UserError
from experiments.studies.study import read

if TYPE_CHECKING:
    import pandas as pd

    from analysis.runs import Run

KEPT = ("step", "reward_mean", "kl_ref")  # of metrics.parquet, and all columns that begin with …
KEPT_SECTIONS = ("budget/", "time/", "memory/", "eval/")
PARQUET: dict[str, Any] = {"index": False, "compression": "zstd", "compression_level": 19}
SLIM = (  # of a run folder, in an archive
    *("run.json", "config.yaml", "metrics.parquet", "evals.parquet", "further_evals.parquet"),
    *("problems.parquet", "digests.json", "code.diff"),
)
WEIGHTS = "checkpoints/final"
RESUME_STATE = ("state.pt", "state.json")  # of a checkpoint: the optimiser's, to resume from
COMPRESSIONS = {".tar.gz": "gzip", ".tar.zst": "zstd"}


@dataclass(frozen=True)
class FinishedRun:
    """A finished run of a study: its entry in arms.json, and its folder."""

    entry: dict[str, Any]
    folder: Path


def read_arms(folder: Path) -> tuple[list[dict[str, Any]], list[FinishedRun]]:
    """Return arms.json, runs by name, and its finished runs without trials.

    Raises UserError if the file or a run's folder is missing, or no run has finished.
    """
    try:
        arms = json.loads((folder / ARMS).read_text())
    except ValueError as error:
        raise UserError(f"folder={folder}: {ARMS} is damaged: {error}") from error
    except OSError as error:
        raise UserError(
            f"folder={folder}: {ARMS} is missing; `python -m experiments.studies.run` writes it "
            "at the end of the study"
        ) from error
    for entry in arms:
        entry["run"] = Path(entry["run"]).name if entry["run"] else entry["run"]
    finished = [
        FinishedRun(entry, folder / entry["run"])
        for entry in arms
        if entry["status"] == "finished" and not entry["trial"]
    ]
    for run in finished:
        if not run.folder.is_dir():
            raise UserError(f"folder={folder}: {run.folder.name} of {ARMS} is not there")
    if not finished:
        raise UserError(f"folder={folder}: no run has finished")
    return arms, sorted(finished, key=lambda run: run.folder.name)


def pack(study_file: Path, folder: Path, out: Path) -> dict[str, int]:
    """Write a packed study into `out`; return the sizes of its files in bytes.

    Of an absolute `task.path` or `output_dir` the name alone is kept. Raises RunError for a damaged
    run, UserError for one without evaluations.
    """
    import pandas as pd

    from analysis.conversations import has_conversations
    from analysis.runs import load_run

    arms, finished = read_arms(folder)
    counts, rows, metrics, training = [], [], [], []
    with_conversations = False
    local = set[str]()
    for each in finished:
        run = load_run(each.folder)
        name = each.folder.name
        if not len(run.evals) or not len(run.metrics):
            raise UserError(f"folder={folder}: {name} has no evaluation or no step, so no counts")
        counts.append(_counts(run).assign(run=name))
        metrics.append(_evaluated_metrics(run).assign(run=name))
        training.append(_training_metrics(run).assign(run=name))
        with_conversations |= has_conversations(run)
        files = {"config": "config.yaml", "info": "run.json"}
        places = (run.config["task"].get("path"), run.config.get("output_dir"))
        local |= {path for path in map(str, places) if Path(path).is_absolute()}
        texts = {
            column: _without_folder((each.folder / file).read_text(), local)
            for column, file in files.items()
        }
        rows.append({"run": name, "arm": each.entry["arm"], "seed": each.entry["seed"]} | texts)
    out.mkdir(parents=True, exist_ok=True)
    tables = {COUNTS: counts, METRICS: metrics, TRAINING: training}
    if with_conversations:  # single samples are compared with them, so all runs have rows
        tables[TURNS] = [_turn_counts(one.folder) for one in finished]
    packed = {name: pd.concat(parts, ignore_index=True) for name, parts in tables.items()}
    (out / TURNS).unlink(missing_ok=True)  # of an earlier pack
    _write_tables(packed | {RUNS: pd.DataFrame(rows)}, out)
    (out / ARMS).write_text(_without_folder(json.dumps(arms, indent=1), local) + "\n")
    (out / study_file.name).write_bytes(study_file.read_bytes())
    contrasts = read(str(study_file)).contrasts
    (out / CONTRASTS).write_text(json.dumps(contrasts, indent=1) + "\n")
    files_of_pack = (ARMS, CONTRASTS, *packed, RUNS, study_file.name)
    lines = [f"{digest}  {file}\n" for file, digest in sums(out, files_of_pack).items()]
    (out / SUMS).write_text("".join(lines))
    return {file: (out / file).stat().st_size for file in (*files_of_pack, SUMS)}


def _write_tables(tables: Mapping[str, pd.DataFrame], out: Path) -> None:
    """Write each table, with the run as its first column."""
    for name, table in tables.items():
        table.insert(0, "run", table.pop("run"))
        table.to_parquet(out / name, **PARQUET)


def _without_folder(text: str, paths: set[str]) -> str:
    """Leave only the last part of these paths in a text."""
    for path in sorted(paths, key=len, reverse=True):  # one may begin another
        text = text.replace(path, Path(path).name)
    return text


def _counts(run: Run) -> pd.DataFrame:
    """Return the counts of all evaluations of a run, at its main temperature first."""
    import pandas as pd

    from analysis.packed import count_samples

    main = run.config["eval"]["temperature"]
    parts = [
        count_samples(samples).assign(temperature=float(temperature), main=samples is run.evals)
        for temperature, samples in ((main, run.evals), *run.further_evals.items())
    ]
    return pd.concat(parts, ignore_index=True)


def _turn_counts(folder: Path) -> pd.DataFrame:
    """Return the counts of a run's conversations, in full before training and at its end."""
    import pandas as pd

    from analysis.conversations import counts_at, solved_at
    from analysis.runs import load_run

    run = load_run(folder)
    whole = (0, run.evaluated_steps[-1])
    steps = run.evaluated_steps
    parts = [counts_at(run, step) if step in whole else solved_at(run, step) for step in steps]
    return pd.concat(parts, ignore_index=True).assign(run=folder.name)


def _evaluated_metrics(run: Run) -> pd.DataFrame:
    """Return what was spent until each evaluation and until the end."""
    steps = run.metrics["step"]
    columns = [c for c in run.metrics if c in KEPT or str(c).startswith(KEPT_SECTIONS)]
    return run.metrics.loc[steps.isin(run.evaluated_steps) | (steps == steps.max()), columns]


def _training_metrics(run: Run) -> pd.DataFrame:
    """Return the columns of training curves at every step, at single precision."""
    from analysis.budgets import TRAINING_METRICS

    drawn = [metric.name for metric in TRAINING_METRICS]
    names = [name for name in (*drawn, "value/group_mean_explained") if name in run.metrics]
    return run.metrics[["step", *names]].astype(dict.fromkeys(names, "float32"))


# Slim run folders.


def compression_of(archive: Path) -> str:
    """Return an archive's compression by its name. Raises UserError for an unknown ending."""
    for ending, compression in COMPRESSIONS.items():
        if archive.name.endswith(ending):
            return compression
    raise UserError(f"archive={archive}: write a name that ends in {' or '.join(COMPRESSIONS)}")


def write_archive(folder: Path, archive: Path, weights: bool) -> int:
    """Write arms.json and the finished runs' slim folders; return the archive's size in bytes.

    `weights`: also those of the last checkpoint, without the optimiser's state. Owners and times
    are left out, so equal runs give equal archives.
    """
    import pyarrow as pa

    _, finished = read_arms(folder)
    beside = [file for file in (folder / ARMS, folder / CONTRASTS) if file.is_file()]
    files = [*beside, *(f for run in finished for f in _slim_files(run.folder, weights))]
    archive.parent.mkdir(parents=True, exist_ok=True)
    with (
        pa.CompressedOutputStream(str(archive), compression_of(archive)) as stream,
        tarfile.open(fileobj=stream, mode="w|") as tar,
    ):
        for file in files:
            name = Path(folder.resolve().name) / file.relative_to(folder)
            entry = tarfile.TarInfo(name.as_posix())
            entry.size, entry.mode = file.stat().st_size, 0o644
            with file.open("rb") as content:
                tar.addfile(entry, content)
    return archive.stat().st_size


def _slim_files(run: Path, weights: bool) -> Iterator[Path]:
    names: Sequence[str] = (*SLIM, WEIGHTS) if weights else SLIM
    for path in (run / name for name in names):
        if path.is_dir():
            kept = (file for file in path.rglob("*") if file.is_file())
            yield from sorted(file for file in kept if file.name not in RESUME_STATE)
        elif path.is_file():
            yield path
