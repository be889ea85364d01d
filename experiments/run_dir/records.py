"""The run folder: what is written, when, and how it survives a crash.

`config.yaml` and `run.json` are there before anything heavy starts. Training rows go to a journal,
`metrics.jsonl`, line by line, so that a killed process loses none; at each evaluation and at the
end they are written as `metrics.parquet`, and a run that ends by itself or by Ctrl-C removes the
journal. Each evaluation is a file of its own in the folder `evals.parquet`; the problems that it
asks are in `problems.parquet`. Files are replaced whole, never half, and a run that goes on cuts
what came after its checkpoint. Only the last word of `run.json`, on a disk that is full by then, is
written over the old one, in blanks that are kept there for it.
"""

from __future__ import annotations

import datetime
import importlib.metadata
import json
import os
import platform
import re
import shutil
import subprocess
import traceback
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

from omegaconf import OmegaConf

from experiments.config.schema import RunConfig
from experiments.errors import UserError, one_line
from experiments.run_dir.atomic_files import BEFORE, atomic_write, final_name, lock, sync
from experiments.run_dir.machine import hardware

if TYPE_CHECKING:
    import pandas as pd

PACKAGES = ("torch", "transformers", "hydra-core", "pandas", "docker", "numpy")
BEST = "best"  # the checkpoint that did best by validation
RESERVED = 2048  # bytes at the end of run.json: more than a last word takes


class Records:
    """Writes one run folder; `finish` gives the last word on how the run ended."""

    def __init__(
        self,
        config: RunConfig,
        folder: Path | None = None,
        recorded: int = 0,
        taken: Path | None = None,
    ) -> None:
        """A new folder; or `folder`, of a run that goes on after its first `recorded` rows from
        `taken`, which is called `final_name(taken)` from then on.

        Raises UserError where that run is still going on, or lacks rows.
        """
        self.folder = folder or _new_folder(config)
        self._lock = lock(self.folder)
        self.metrics: list[dict[str, Any]] = _rows(self.folder)[:recorded] if folder else []
        if [row["step"] for row in self.metrics] != list(range(1, recorded + 1)):
            os.close(self._lock)
            raise UserError(
                f"{self.folder}: the metrics of its first {recorded} steps are not all there, "
                "though its checkpoint is; begin a new run"
            )
        self.info: dict[str, Any] = {
            "status": "running",
            "error": None,
            "started": _now(),
            "ended": None,
            "seed": config.seed,
            "algo": config.algo.name,
            "task": config.task.name,
            "model": config.model.name,
            "commit": _commit(),
            "versions": {"python": platform.python_version(), **_versions()},
            "hardware": hardware(),
            "pid": os.getpid(),
            "checkpoints": {},
            "resumed": [],
        }
        self._evals = self.folder / "evals.parquet"
        try:
            if folder:
                self._go_on(recorded, taken)
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

    def _go_on(self, recorded: int, taken: Path | None) -> None:
        """Cut what came after the checkpoint; say in run.json where the run went on, and how."""
        before = json.loads((self.folder / "run.json").read_text())
        now = {key: self.info[key] for key in ("started", "commit", "versions", "hardware")}
        again = {"resumed": [*before.get("resumed", []), {"step": recorded, **now}]}
        ended = {key: self.info[key] for key in ("status", "error", "ended", "pid")}
        self.info = before | ended | again
        with atomic_write(self.folder / "metrics.jsonl") as file:
            file.write_text("".join(json.dumps(row) + "\n" for row in self.metrics))
        for part in self._evals.glob("step-*.parquet"):
            if int(part.stem.removeprefix("step-")) > recorded:
                part.unlink()
        for hidden in self.folder.glob("checkpoints/.*"):
            place = final_name(hidden)
            if hidden.name.endswith(BEFORE) and (hidden == taken or not place.exists()):
                shutil.rmtree(place, ignore_errors=True)  # damaged, or it would have been taken
                hidden.replace(place)  # killed between the two renames of `checkpoint`
        for unfinished in self.folder.glob("checkpoints/.*"):
            shutil.rmtree(unfinished, ignore_errors=True)
        self._adopt_checkpoints()

    def _adopt_checkpoints(self) -> None:
        """Know what is there, also what a kill came before run.json could name, and no more."""
        known, folder = self.info.get("checkpoints", {}), self.folder / "checkpoints"
        there = [path.name for path in folder.glob("[!.]*")]
        numbered = {name: int(name[5:]) for name in there if re.fullmatch(r"step-\d+", name)}
        self.info["checkpoints"] = numbered | {n: s for n, s in known.items() if n in there}

    def describe(self, **facts: Any) -> None:
        """Add facts to run.json."""
        self.info |= facts
        with atomic_write(self.folder / "run.json") as file:
            file.write_text(_as_json(self.info, " " * RESERVED))

    def step(self, row: dict[str, Any]) -> None:
        """One training step."""
        self.metrics.append(row)
        self._journal.write(json.dumps(row) + "\n")

    def problems(self, rows: Iterable[dict[str, Any]]) -> None:
        """problems.parquet: what the evaluation asks, for whoever reads its samples later."""
        import pandas as pd

        _write_table(pd.DataFrame(rows), self.folder / "problems.parquet")

    def evaluation(self, step: int, rows: list[dict[str, Any]]) -> None:
        """One evaluation: a part of evals.parquet, which pandas reads as one table."""
        import pandas as pd

        _write_table(pd.DataFrame(rows), self._evals / f"step-{step:08}.parquet")
        self._write_metrics()

    @contextmanager
    def checkpoint(self, name: str, step: int) -> Iterator[Path]:
        """A folder to write the weights of `step` into; it gets its `name` when they are whole.

        One of that name from before is replaced.
        """
        parent = self.folder / "checkpoints"
        unfinished, replaced = parent / f".{name}", parent / f".{name}{BEFORE}"
        try:
            unfinished.mkdir(parents=True)
            yield unfinished
            os.fsync(self._journal.fileno())  # the rows that the checkpoint counts on
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
        """All but the last `keep` and the best go."""
        known = self.info["checkpoints"]
        gone = sorted(known.keys() - {BEST}, key=known.get)[:-keep]
        self.describe(checkpoints={name: known[name] for name in known if name not in gone})
        for name in gone:
            shutil.rmtree(self.folder / "checkpoints" / name, ignore_errors=True)

    def keep_traceback(self) -> Path:
        """The traceback of the error in hand, for whoever mends the code."""
        path = self.folder / "traceback.txt"
        with suppress(OSError):
            path.write_text(traceback.format_exc())
        return path

    def finish(self, status: str, error: str | None = None) -> None:
        """status: finished | interrupted | failed. On a full disk the journal stays.

        Raises OSError where a finished run's metrics cannot be written: it is failed then.
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
        """The status goes into run.json even where nothing else can be written any more."""
        last_word = {"status": status, "error": error, "ended": _now()}
        path = self.folder / "run.json"
        try:
            with atomic_write(path) as file:
                file.write_text(_as_json(self.info | last_word))
        except OSError:
            with path.open("r+b") as file:
                old = file.read()
                file.seek(0)
                file.write(_as_json(json.loads(old) | last_word).encode().ljust(len(old)))
        self.info |= last_word
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
    """The metrics of a run that ended somehow; a line that a crash cut is left out."""
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

    return pd.read_parquet(table).to_dict("records")


def _new_folder(config: RunConfig) -> Path:
    """output_dir/name/algo-seed-time, never one that exists."""
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
            f"output_dir={config.output_dir}: run folders cannot be made there "
            f"({error.strerror}); choose a folder that you may write to"
        ) from error
    raise UserError(f"output_dir={config.output_dir}: {base} and 999 like it exist already")


def _now() -> str:
    return datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")


def _versions() -> dict[str, str]:
    return {package: importlib.metadata.version(package) for package in PACKAGES}


def _commit() -> str | None:
    """The code's commit, with a plus sign where the working tree differs from it."""
    root = Path(__file__).resolve().parents[2]
    try:
        described = subprocess.run(
            ["git", "describe", "--always", "--dirty=+", "--abbrev=12", "--exclude=*"],
            cwd=root,
            capture_output=True,
            text=True,
            timeout=10,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return described.stdout.strip()
