"""The run folder: its files, when they are written, and how they survive a crash.

- `config.yaml` and `run.json` are written before anything heavy starts.
- Training rows go to a journal, `metrics.jsonl`, line by line, so that a killed process loses none.
  At each evaluation and at the end they are written to `metrics.parquet`. A run that ends by itself
  or by Ctrl-C removes the journal.
- Each evaluation is a file in the folder `evals.parquet`; its problems are in `problems.parquet`.
  Those at `eval.further_temperatures` are in `further_evals.parquet`.

Files are replaced atomically, and a resumed run cuts what came after its checkpoint. The one
exception is the final status in `run.json` when the disk is full: it overwrites the file in place,
into blanks reserved for it.
"""

from __future__ import annotations

import datetime
import importlib.metadata
import json
import os
import platform
import re
import shutil
import traceback
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

from omegaconf import OmegaConf

from experiments.config.schema import RunConfig
from experiments.errors import UserError, one_line
from experiments.gpus import VISIBLE
from experiments.run_dir.atomic_files import BEFORE, atomic_write, final_name, lock, sync
from experiments.run_dir.machine import hardware
from experiments.run_dir.provenance import command_line, commit, keep_provenance, packages

if TYPE_CHECKING:
    import pandas as pd

PACKAGES = ("torch", "transformers", "hydra-core", "pandas", "docker", "numpy")
BEST = "best"  # name of the checkpoint with the best evaluation
STUDY_VARIABLE = "SPO_BENCH_STUDY"  # a study's runner names itself to its runs
RESERVED = 2048  # bytes of blanks at the end of run.json, more than a final status takes


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

        `checkpoint`: the one that the run resumes from; it gets its `final_name` back. Raises
        UserError if that run is still running, or rows are missing.
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
            "versions": {"python": platform.python_version(), **_versions()},
            "packages": packages(),
            "hardware": hardware(),
            "visible_gpus": os.environ.get(VISIBLE),
            "pid": os.getpid(),
            "checkpoints": {},
            "resumed": [],
        }
        self.folder = folder or _new_folder(config)
        self._lock = lock(self.folder)
        rows = _rows(self.folder) if folder else []
        self.metrics: list[dict[str, Any]] = rows[:recorded]
        self._config = config
        self._at_first_step: dict[str, Any] = {}  # for run.json; until then the run is finished
        if [row["step"] for row in self.metrics] != list(range(1, recorded + 1)):
            os.close(self._lock)
            raise UserError(
                f"{self.folder}: some metrics of its first {recorded} steps are missing, so "
                "its checkpoint cannot be resumed; begin a new run"
            )
        self._evals = self.folder / "evals.parquet"
        self._further_evals = self.folder / "further_evals.parquet"
        try:
            if folder:
                self._continue(config, recorded, checkpoint, len(rows) == recorded)
            else:
                self.info |= keep_provenance(self.folder)
            if not self._at_first_step:
                self._write_config()
            self.describe()
            self._evals.mkdir(exist_ok=True)
            self._journal: TextIO = (self.folder / "metrics.jsonl").open("a", buffering=1)
        except OSError:
            os.close(self._lock)
            if not folder:
                shutil.rmtree(self.folder, ignore_errors=True)
            raise

    def _continue(
        self, config: RunConfig, recorded: int, checkpoint: Path | None, whole: bool
    ) -> None:
        """Cut what came after the checkpoint, and note in run.json where the run resumed.

        `whole`: nothing came after it. Then a finished run stays so until a further step is done.
        """
        before = json.loads((self.folder / "run.json").read_text())
        kept = ("started", "command", "commit", "versions", "packages", "hardware", "visible_gpus")
        now = {key: self.info[key] for key in kept}
        now |= keep_provenance(self.folder, recorded)
        resumed = {"resumed": [*before.get("resumed", []), {"step": recorded, **now}]}
        ended = {key: self.info[key] for key in ("status", "error", "ended", "pid")}
        if whole and before.get("status") == "finished":
            self.info, self._at_first_step = before, ended | resumed
        else:
            self.info = before | ended | resumed
        with atomic_write(self.folder / "metrics.jsonl") as file:
            file.write_text("".join(json.dumps(row) + "\n" for row in self.metrics))
        for evals in (self._evals, self._further_evals):
            for part in evals.glob("step-*.parquet"):
                if int(part.stem.split("-")[1]) > recorded:
                    part.unlink()
        for hidden in self.folder.glob("checkpoints/.*"):
            place = final_name(hidden)
            if hidden.name.endswith(BEFORE) and (hidden == checkpoint or not place.exists()):
                shutil.rmtree(
                    place, ignore_errors=True
                )  # damaged, since the run resumes from the other
                hidden.replace(place)  # the run was killed between the renames in `checkpoint`
        for unfinished in self.folder.glob("checkpoints/.*"):
            shutil.rmtree(unfinished, ignore_errors=True)
        self._adopt_checkpoints()

    def _write_config(self) -> None:
        with atomic_write(self.folder / "config.yaml") as file:
            file.write_text(OmegaConf.to_yaml(asdict(self._config)))

    def _adopt_checkpoints(self) -> None:
        """List the checkpoints that exist, including those written just before a kill."""
        recorded, folder = self.info.get("checkpoints", {}), self.folder / "checkpoints"
        names = [path.name for path in folder.glob("[!.]*")]
        numbered = {name: int(name[5:]) for name in names if re.fullmatch(r"step-\d+", name)}
        self.info["checkpoints"] = numbered | {n: s for n, s in recorded.items() if n in names}

    def describe(self, **facts: Any) -> None:
        """Add facts to run.json."""
        self.info |= facts
        with atomic_write(self.folder / "run.json") as file:
            file.write_text(_as_json(self.info, " " * RESERVED))

    def step(self, row: dict[str, Any]) -> None:
        """Record a training step."""
        if self._at_first_step:
            # the status before the steps: a run killed here must not look finished with more steps
            self.describe(**self._at_first_step)
            self._at_first_step = {}
            self._write_config()
        self.metrics.append(row)
        self._journal.write(json.dumps(row) + "\n")

    def problems(self, rows: Iterable[dict[str, Any]]) -> None:
        """Write problems.parquet: the prompts behind the samples of the evaluations."""
        import pandas as pd

        _write_table(pd.DataFrame(rows), self.folder / "problems.parquet")

    def evaluation(self, step: int, rows: list[dict[str, Any]]) -> None:
        """Write a part of evals.parquet, which pandas reads as one table."""
        import pandas as pd

        _write_table(pd.DataFrame(rows), self._evals / f"step-{step:08}.parquet")
        self._write_metrics()

    def further_evaluation(self, step: int, temperature: float, rows: list[dict[str, Any]]) -> None:
        """Write a part of further_evals.parquet: evals.parquet with a column `temperature`."""
        import pandas as pd

        self._further_evals.mkdir(exist_ok=True)
        table = pd.DataFrame(rows).assign(temperature=temperature)
        name = f"step-{step:08}-temperature-{temperature:g}.parquet"
        _write_table(table, self._further_evals / name)

    @contextmanager
    def checkpoint(self, name: str, step: int) -> Iterator[Path]:
        """Yield a folder for the weights of `step`, which takes its `name` when they are whole.

        A checkpoint of the same name is replaced.
        """
        parent = self.folder / "checkpoints"
        unfinished, replaced = parent / f".{name}", parent / f".{name}{BEFORE}"
        try:
            unfinished.mkdir(parents=True)
            yield unfinished
            os.fsync(self._journal.fileno())  # the rows that the checkpoint relies on
            for path in (*unfinished.iterdir(), unfinished):
                sync(path)
            if (parent / name).exists():
                (parent / name).replace(replaced)
            unfinished.replace(parent / name)
            sync(parent)
        except BaseException:
            shutil.rmtree(unfinished, ignore_errors=True)
            raise
        shutil.rmtree(replaced, ignore_errors=True)
        self.describe(checkpoints={**self.info["checkpoints"], name: step})

    def forget_checkpoints(self, keep: int) -> None:
        """Delete all but the last `keep` checkpoints and the best."""
        steps = self.info["checkpoints"]
        deleted = sorted(steps.keys() - {BEST}, key=lambda name: steps[name])[:-keep]
        self.describe(checkpoints={name: steps[name] for name in steps if name not in deleted})
        for name in deleted:
            shutil.rmtree(self.folder / "checkpoints" / name, ignore_errors=True)

    def keep_traceback(self) -> Path:
        """Write the traceback of the current error to the run folder; return its path."""
        path = self.folder / "traceback.txt"
        with suppress(OSError):
            path.write_text(traceback.format_exc())
        return path

    def how_to_resume(self) -> str:
        """Where a run that failed is, and from which step it can be resumed."""
        steps = [int(step) for step in self.info["checkpoints"].values()]
        again = "begins again: it has no checkpoint"
        return f"resume={self.folder} {f'resumes after step {max(steps)}' if steps else again}"

    def finish(self, status: str, error: str | None = None) -> None:
        """Record the status: finished | interrupted | failed. On a full disk the journal stays.

        Raises OSError if a finished run's metrics cannot be written; its status is then failed.
        """
        try:
            self._write_metrics()
            self._journal.close()
            (self.folder / "metrics.jsonl").unlink()
        except OSError as full:
            with suppress(OSError):
                self._journal.close()
            if status == "finished":
                self._end("failed", one_line(full))
                raise
        self._end(status, error)

    def _end(self, status: str, error: str | None) -> None:
        """Write the status to run.json, even on a full disk."""
        final = {"status": status, "error": error, "ended": _now()}
        if self._at_first_step:  # a finished run to which no step was added
            final = {key: self.info.get(key) for key in final}
        path = self.folder / "run.json"
        try:
            with atomic_write(path) as file:
                file.write_text(_as_json(self.info | final))
        except OSError:
            with path.open("r+b") as file:
                old = file.read()
                file.seek(0)
                file.write(_as_json(json.loads(old) | final).encode().ljust(len(old)))
        self.info |= final
        os.close(self._lock)

    def _write_metrics(self) -> None:
        import pandas as pd

        columns = None if self.metrics else ["step", "reward_mean"]
        table = pd.DataFrame(self.metrics, columns=columns)
        _write_table(table, self.folder / "metrics.parquet")


def _as_json(info: dict[str, Any], blanks: str = "") -> str:
    return json.dumps(info, indent=2) + blanks + "\n"


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
    import pandas as pd

    records = pd.read_parquet(table).to_dict("records")
    return [{str(name): value for name, value in row.items()} for row in records]


def _new_folder(config: RunConfig) -> Path:
    """Make output_dir/name/algo-seed-time, never a folder that exists."""
    stamp = datetime.datetime.now().strftime("%Y%m%d-%H%M%S")
    parent = Path(config.output_dir) / config.name
    base = parent / f"{config.algo.name}-s{config.seed}-{stamp}"
    try:
        parent.mkdir(parents=True, exist_ok=True)
        for attempt in range(1000):
            folder = base if not attempt else base.with_name(f"{base.name}-{attempt}")
            try:
                folder.mkdir()
            except FileExistsError:
                if not folder.is_dir():
                    raise
                continue
            return folder
    except OSError as error:
        raise UserError(
            f"output_dir={config.output_dir}: cannot create run folders there "
            f"({error.strerror}); choose a writable folder"
        ) from error
    raise UserError(f"output_dir={config.output_dir}: {base} and 999 folders like it exist already")


def _now() -> str:
    return datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")


def _versions() -> dict[str, str]:
    return {package: importlib.metadata.version(package) for package in PACKAGES}
