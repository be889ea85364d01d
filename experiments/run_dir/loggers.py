"""Loggers that show a run elsewhere: Weights & Biases, trackio, TensorBoard, several, or none.

The run folder is the record, so a logger's failure never stops a run. The first failure is printed,
and that logger gets nothing more.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import math
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, Protocol

import pandas as pd

from analysis.metrics import at_temperature, scores
from envs.command_line import leaves
from experiments.config.composition import may_change
from experiments.config.schema import RunConfig
from experiments.errors import one_line
from experiments.run_dir.ledger import Counts

UNPREFIXED = ("budget/", "time/", "memory/", "eval/")  # columns that keep their names
FINISH_S = 120.0  # an upload that hangs does not hold up the run

Settings = dict[str, Any]  # the configuration as plain values


class Logger(Protocol):
    """Shows a run."""

    def log(self, step: int, values: dict[str, float]) -> None:
        """Log values of a step: train/…, eval/…, budget/…, time/…, memory/…."""

    def samples(self, step: int, rows: pd.DataFrame) -> None:
        """Log a batch's responses."""

    def close(self, status: str) -> None:
        """Log the status: finished | interrupted | failed."""


class Loggers:
    """All loggers of a configuration, guarded."""

    def __init__(
        self, makers: Mapping[str, Callable[[], Logger]], say: Callable[[str], None]
    ) -> None:
        self.say = say
        self.open: dict[str, Logger] = {}
        for name, make in makers.items():
            with self._guarded(name, "start"):
                self.open[name] = make()

    def step(self, row: dict[str, Any]) -> None:
        """Log a row of metrics.parquet."""
        values = {
            name if name.startswith(UNPREFIXED) or name == "step" else f"train/{name}": value
            for name, value in row.items()
            if not (isinstance(value, float) and math.isnan(value))
        }
        self._each("log", lambda logger: logger.log(row["step"], values))

    def evaluation(
        self,
        step: int,
        rows: Sequence[dict[str, Any]],
        ks: Sequence[int],
        spent: dict[str, float],
        temperature: float | None = None,
    ) -> None:
        """Log the scores of an evaluation's rows; `spent`: the ledger's columns.

        Those at a further temperature stand beside the main ones: eval/pass@1 (T=1).
        """

        def log(logger: Logger) -> None:
            found = sorted(scores(pd.DataFrame(rows), ks).items())
            values = {f"eval/{score}": column.mean() for score, column in found}
            if temperature is None:
                logger.log(step, {"step": step, **values, **spent})
            else:
                logger.log(step, {at_temperature(n, temperature): values[n] for n in values})

        self._each("log", log)

    def samples(self, step: int, rows: Callable[[], pd.DataFrame]) -> None:
        """Log a table of a batch's responses, made only if a logger is open."""
        self._each("log samples", lambda logger: logger.samples(step, rows()))

    def close(self, status: str) -> None:
        """Close all."""
        self._each("finish", lambda logger: logger.close(status))

    def _each(self, verb: str, act: Callable[[Logger], None]) -> None:
        for name, logger in list(self.open.items()):
            with self._guarded(name, verb):
                act(logger)

    @contextlib.contextmanager
    def _guarded(self, name: str, verb: str) -> Any:
        try:
            yield
        except Exception as error:
            self.open.pop(name, None)
            self.say(
                f"logger={name}: could not {verb} ({one_line(error)}); the run continues without it"
            )


def open_loggers(
    config: RunConfig, folder: Path, recorded: int, say: Callable[[str], None]
) -> Loggers:
    """Open the loggers of a configuration; `recorded`: steps that a resumed run has logged."""
    settings, makers = asdict(config), dict[str, Callable[[], Logger]]()
    if wandb := config.logger.wandb:
        makers["wandb"] = lambda: WandbLogger(wandb.project, wandb.entity, folder, settings, say)
    if trackio := config.logger.trackio:
        makers["trackio"] = lambda: TrackioLogger(trackio.project, folder, settings)
    if config.logger.tensorboard:
        makers["tensorboard"] = lambda: TensorboardLogger(folder, recorded)
    return Loggers(makers, say)


def group(settings: Settings) -> str:
    """Return the group of runs that differ only in the seed: name, algorithm and a hash.

    What a resumed run may change is not in the hash, so that it stays in its group. As in the
    report, paths inside output_dir (of initial weights) are ignored.
    """
    home = f"{settings['output_dir']}/"
    shared = [
        (key, value)
        for key, value in sorted(leaves(settings))
        if key not in ("name", "seed") and not may_change(key) and not str(value).startswith(home)
    ]
    digest = hashlib.sha256(repr(shared).encode()).hexdigest()[:6]
    return f"{settings['name']}/{settings['algo']['name']}-{digest}"


class WandbLogger:
    """One W&B run, whose id is the run folder's name: a resumed run keeps it.

    W&B's step is the training step, so it ignores steps replayed since the checkpoint (they are
    identical). A training step and its evaluation are one row, so any budget can be the x-axis.
    Without a key it logs offline.
    """

    def __init__(
        self,
        project: str,
        entity: str | None,
        folder: Path,
        settings: Settings,
        say: Callable[[str], None],
    ) -> None:
        import wandb

        self.say = say
        mode: Any = os.environ.get("WANDB_MODE")
        mode = mode or ("online" if wandb.login(prompt=False) else "offline")
        self.run = wandb.init(
            project=project,
            entity=entity,
            id=folder.name,
            resume=None if mode == "offline" else "allow",
            name=folder.name,
            group=group(settings),
            job_type="train",
            dir=str(folder),
            mode=mode,
            config=settings,
            settings=wandb.Settings(silent=True, finish_timeout=FINISH_S),
        )
        for axis in ("step", "time/total_s", *(f"budget/{name}" for name in vars(Counts()))):
            self.run.define_metric(axis)
        for panel in ("train", "eval", "memory", "time"):
            self.run.define_metric(f"{panel}/*", step_metric="step")

    def log(self, step: int, values: dict[str, float]) -> None:
        self.run.log(values, step=step)

    def samples(self, step: int, rows: pd.DataFrame) -> None:
        import wandb

        self.run.log({"samples": wandb.Table(dataframe=rows)}, step=step)

    def close(self, status: str) -> None:
        self.run.summary["status"] = status
        settings = self.run.settings
        self.run.finish(exit_code=0 if status == "finished" else 1)
        if settings.mode == "offline":
            # a resumed run has a folder for each time, and each holds its own steps alone
            parts = Path(settings.sync_dir).parent / "offline-run-*"
            self.say(f"W&B logged offline; upload: wandb sync {parts}")


class TrackioLogger:
    """One trackio run, named after the run folder: a resumed run continues it.

    Metrics are in a local database that `trackio show` opens in a browser; TRACKIO_SPACE_ID and
    TRACKIO_SERVER_URL send them elsewhere. Steps replayed since the checkpoint are logged again.
    They are identical, so a curve stays the same.
    """

    def __init__(self, project: str, folder: Path, settings: Settings) -> None:
        import trackio

        self.trackio = trackio
        with contextlib.redirect_stdout(io.StringIO()):  # which belongs to the run
            self.run = trackio.init(
                project=project,
                name=folder.name,
                group=group(settings),
                config=settings,
                resume="allow",
                embed=False,
                auto_log_gpu=False,
                auto_log_cpu=False,
            )

    def log(self, step: int, values: dict[str, float]) -> None:
        self.run.log({k: v for k, v in values.items() if k != "step"}, step=step)

    def samples(self, step: int, rows: pd.DataFrame) -> None:
        self.run.log({"samples": self.trackio.Table(dataframe=rows)}, step=step)

    def close(self, status: str) -> None:
        self.run.log({"status": status})
        with contextlib.redirect_stdout(io.StringIO()):
            self.trackio.finish()


class TensorboardLogger:
    """Event files in the run folder; `tensorboard --logdir outputs` shows all runs.

    A resumed run drops the events after its checkpoint.
    """

    def __init__(self, folder: Path, recorded: int) -> None:
        from torch.utils.tensorboard import SummaryWriter

        self.writer = SummaryWriter(
            str(folder / "tensorboard"), purge_step=recorded + 1 if recorded else None
        )

    def log(self, step: int, values: dict[str, float]) -> None:
        for name, value in values.items():
            if name != "step":
                self.writer.add_scalar(name, value, step)

    def samples(self, step: int, rows: pd.DataFrame) -> None:
        pass  # it has no tables

    def close(self, status: str) -> None:
        self.writer.add_text("status", status)
        self.writer.close()
