"""The run folder: its files, when they are written, and how they survive a crash.

- `config.yaml` and `run.json` are written before anything heavy starts.
- Training rows go to a journal, `metrics.jsonl`, line by line, so that a killed process loses none.
  At each evaluation and at the end they are written to `metrics.parquet`. A run that ends by itself
  or by Ctrl-C removes the journal.
- Each evaluation is a file in the folder `evals.parquet`; its problems are in `problems.parquet`.
  Those at `eval.further_temperatures` are in `further_evals.parquet`.

Files are replaced atomically, and a resumed run cuts what came after its checkpoint.
"""

from __future__ import annotations

import datetime
import json
import os
import platform
import shutil
import traceback
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict
from importlib.metadata import version
from pathlib import Path
from typing import Any, TextIO

import pandas as pd
from omegaconf import OmegaConf

from experiments.config.schema import RunConfig
from experiments.errors import UserError
from experiments.run_dir import checkpoints
from experiments.run_dir.atomic_files import atomic_write, lock, sync
from experiments.run_dir.provenance import command_line, commit, hardware, keep_provenance, packages

PACKAGES = ("torch", "transformers", "hydra-core", "pandas", "docker", "numpy")
BEST = "best"  # name of the checkpoint with the best evaluation
STUDY_VARIABLE = "SPO_BENCH_STUDY"  # a study's runner names itself to its runs


class Records:
    """Writes one run folder; `finish` records how the run ended."""

    def __init__(
        self,
        config: RunConfig,
        folder: Path | None = None,
        recorded: int = 0,
        checkpoint: Path | None = None,
    ) -> None:
        """Make a new run folder, or continue `folder` after its first `recorded` rows.

        `checkpoint`: the folder that the run resumes from. Raises UserError if that run is still
        running, or rows are missing.
        """
        self.info: dict[str, Any] = {
            "status": "running",
            "error": None,
            "started": _now(),
            "ended": None,
            "study": os.environ.get(STUDY_VARIABLE),
            "seed": config.seed,
            "algo": config.algo.name,
            "task": config.task.name,
            "model": config.model.name,
            "command": command_line(),
            "commit": commit(),
            "versions": {"python": platform.python_version()} | {p: version(p) for p in PACKAGES},
            "packages": packages(),
            "hardware": hardware(),
            "visible_gpus": os.environ.get("CUDA_VISIBLE_DEVICES"),
            "pid": os.getpid(),
            "checkpoints": {},
            "resumed": [],
        }
        self.folder = folder or _new_folder(config)
        self._lock = lock(self.folder)
        data = [config.task.path, config.task.test_path]
        self._inputs = {"data": data, "model": [config.model.path]}
        self._evals = self.folder / "evals.parquet"
        self._further_evals = self.folder / "further_evals.parquet"
        self.metrics = _rows(self.folder)[:recorded]
        if [row["step"] for row in self.metrics] != list(range(1, recorded + 1)):
            os.close(self._lock)
            raise UserError(
                f"{self.folder}: some metrics of its first {recorded} steps are missing, so "
                "its checkpoint cannot be resumed; begin a new run"
            )
        try:
            if folder:
                self._continue(config, recorded, checkpoint)
            else:
                self.info |= keep_provenance(self.folder, self._inputs)
            with atomic_write(self.folder / "config.yaml") as file:
                file.write_text(OmegaConf.to_yaml(asdict(config)))
            self.describe()
            self._evals.mkdir(exist_ok=True)
            self._journal: TextIO = (self.folder / "metrics.jsonl").open("a", buffering=1)
        except OSError:
            os.close(self._lock)
            if not folder:
                shutil.rmtree(self.folder, ignore_errors=True)
            raise

    def _continue(self, config: RunConfig, recorded: int, checkpoint: Path | None) -> None:
        """Cut what came after the checkpoint, and note in run.json where the run resumed."""
        before = json.loads((self.folder / "run.json").read_text())
        kept = ("started", "command", "commit", "versions", "packages", "hardware", "visible_gpus")
        now = {"step": recorded} | {key: self.info[key] for key in kept}
        now |= keep_provenance(self.folder, self._inputs, recorded)
        ended = {key: self.info[key] for key in ("status", "error", "ended", "pid")}
        self.info = before | ended | {"resumed": [*before["resumed"], now]}
        with atomic_write(self.folder / "metrics.jsonl") as file:
            file.write_text("".join(json.dumps(row) + "\n" for row in self.metrics))
        for part in self.folder.glob("*evals.parquet/step-*.parquet"):
            if int(part.stem.split("-")[1]) > recorded:
                part.unlink()
        places = self.folder / "checkpoints"
        if checkpoint is not None and checkpoint != self.final_name(checkpoint):
            _replace(checkpoint, self.final_name(checkpoint))  # killed just before the rename
        for unfinished in places.glob(".*"):
            shutil.rmtree(unfinished, ignore_errors=True)
        known = {name: n for name, n in before["checkpoints"].items() if (places / name).is_dir()}
        sealed = places.glob(f"*/{checkpoints.SEAL}")  # also those written just before a kill
        steps = {seal.parent.name: checkpoints.step_of(seal) for seal in sealed}
        self.info["checkpoints"] = known | steps

    @staticmethod
    def final_name(checkpoint: Path) -> Path:
        """Return the visible path of a checkpoint; it is hidden until it is whole."""
        return checkpoint.with_name(checkpoint.name.removeprefix("."))

    def describe(self, **facts: Any) -> None:
        """Add facts to run.json."""
        self.info |= facts
        with atomic_write(self.folder / "run.json") as file:
            file.write_text(json.dumps(self.info, indent=2) + "\n")

    def step(self, row: dict[str, Any]) -> None:
        """Record a training step."""
        self.metrics.append(row)
        self._journal.write(json.dumps(row) + "\n")

    def problems(self, rows: Iterable[dict[str, Any]]) -> None:
        """Write problems.parquet: the prompts behind the samples of the evaluations."""
        _write_table(pd.DataFrame(rows), self.folder / "problems.parquet")

    def evaluation(
        self, step: int, rows: list[dict[str, Any]], temperature: float | None = None
    ) -> None:
        """Write a part of evals.parquet, which pandas reads as one table.

        With one of `eval.further_temperatures`: a part of further_evals.parquet, which has a column
        `temperature`.
        """
        table, name = pd.DataFrame(rows), f"step-{step:08}"
        if temperature is None:
            _write_table(table, self._evals / f"{name}.parquet")
            self._write_metrics()
            return
        self._further_evals.mkdir(exist_ok=True)
        file = self._further_evals / f"{name}-temperature-{temperature:g}.parquet"
        _write_table(table.assign(temperature=temperature), file)

    @contextmanager
    def checkpoint(self, name: str, step: int, keep: int) -> Iterator[Path]:
        """Yield a hidden folder for a checkpoint, which takes its `name` when it is whole.

        A checkpoint of the same name is replaced. Of others all but the last `keep` and the best
        are deleted.
        """
        parent = self.folder / "checkpoints"
        hidden = parent / f".{name}"
        try:
            hidden.mkdir(parents=True)
            yield hidden
            os.fsync(self._journal.fileno())  # the rows that the checkpoint relies on
            for path in (*hidden.iterdir(), hidden):
                sync(path)
            _replace(hidden, parent / name)
            sync(parent)
        except BaseException:
            shutil.rmtree(hidden, ignore_errors=True)
            raise
        steps = {**self.info["checkpoints"], name: step}
        deleted = sorted(steps.keys() - {BEST}, key=lambda each: (steps[each], each))[:-keep]
        self.describe(checkpoints={each: steps[each] for each in steps if each not in deleted})
        for each in deleted:
            shutil.rmtree(parent / each, ignore_errors=True)

    def keep_traceback(self) -> Path:
        """Write the traceback of the current error to the run folder; return its path."""
        path = self.folder / "traceback.txt"
        with suppress(OSError):
            path.write_text(traceback.format_exc())
        return path

    def finish(self, status: str, error: str | None = None) -> None:
        """Record the status: finished | interrupted | failed. On a full disk the journal stays.

        Raises OSError if a finished run's metrics cannot be written.
        """
        try:
            self._write_metrics()
            self._journal.close()
            (self.folder / "metrics.jsonl").unlink()
            self.describe(status=status, error=error, ended=_now())
        except OSError:
            if status == "finished":
                raise
        os.close(self._lock)

    def _write_metrics(self) -> None:
        columns = None if self.metrics else ["step", "reward_mean"]
        table = pd.DataFrame(self.metrics, columns=columns)
        _write_table(table, self.folder / "metrics.parquet")


def _replace(hidden: Path, place: Path) -> None:
    """Rename a whole checkpoint. Killed in between, a resumed run does it again."""
    if place.exists():
        shutil.rmtree(place)
    hidden.replace(place)


def _write_table(table: pd.DataFrame, path: Path) -> None:
    with atomic_write(path) as file:
        table.to_parquet(file, index=False)


def _rows(folder: Path) -> list[dict[str, Any]]:
    """Read the metrics of a run that ended; skip a line that a crash cut."""
    journal, table = folder / "metrics.jsonl", folder / "metrics.parquet"
    if journal.exists():
        rows = []
        for line in journal.read_text().splitlines():
            with suppress(json.JSONDecodeError):
                rows.append(json.loads(line))
        return rows
    if not table.exists():
        return []
    records = pd.read_parquet(table).to_dict("records")
    return [{str(name): value for name, value in row.items()} for row in records]


def _new_folder(config: RunConfig) -> Path:
    """Make output_dir/name/algo-seed-time, never a folder that exists."""
    stamp = datetime.datetime.now().strftime("%Y%m%d-%H%M%S")
    base = Path(config.output_dir) / config.name / f"{config.algo.name}-s{config.seed}-{stamp}"
    folder, attempt = base, 0
    while True:
        try:
            folder.mkdir(parents=True)
            return folder
        except FileExistsError:
            attempt += 1
            folder = base.with_name(f"{base.name}-{attempt}")
        except OSError as error:
            raise UserError(
                f"output_dir={config.output_dir}: cannot create run folders there "
                f"({error.strerror}); choose a writable folder"
            ) from error


def _now() -> str:
    return datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
