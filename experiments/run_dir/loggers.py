"""Loggers that show a run elsewhere: Weights & Biases, trackio, TensorBoard, several, or none.

The run folder is the record, so a logger's failure never stops a run. The first failure is printed,
and that logger gets nothing more.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from omegaconf import OmegaConf

from envs.readable import readable
from experiments.config.schema import RunConfig
from experiments.errors import UserError, one_line

if TYPE_CHECKING:
    import pandas as pd

UNPREFIXED = ("budget/", "time/", "memory/", "eval/")  # columns that keep their names
SHOWN_PROGRAMS = 8  # of an evaluation in TensorBoard, each of another problem


class Logger(Protocol):
    """Shows a run. Rows are those of metrics.parquet and evals.parquet."""

    def step(self, step: int, values: dict[str, float]) -> None:
        """Log a training step: train/…, budget/…, time/…, memory/…; at evaluations eval/kl_ref."""

    def evaluation(
        self, step: int, values: dict[str, float], samples: Sequence[dict[str, Any]]
    ) -> None:
        """Log eval/…, budget/…, time/…, memory/…, and samples."""

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
            self._guarded(name, "start", partial(self._start, name, make))

    def step(self, row: dict[str, Any]) -> None:
        """Log a row of metrics.parquet."""
        if self.open:
            values = {logged_name(key): value for key, value in row.items() if is_measured(value)}
            self._each("log", lambda logger: logger.step(row["step"], values))

    def evaluation(
        self,
        step: int,
        rows: Sequence[dict[str, Any]],
        ks: Sequence[int],
        spent: dict[str, float],
    ) -> None:
        """Log the rows of an evaluation; `spent`: the ledger's columns."""
        if not self.open:
            return
        import pandas as pd

        scores: dict[str, float] = {}
        self._guarded("", "score", lambda: scores.update(summary(pd.DataFrame(rows), ks)))
        self._each("log", lambda logger: logger.evaluation(step, scores | spent, rows))

    def further_evaluation(
        self, step: int, temperature: float, rows: Sequence[dict[str, Any]], ks: Sequence[int]
    ) -> None:
        """Log the scores at a further temperature beside the main ones: eval/pass@1 (T=1)."""
        if not self.open:
            return
        import pandas as pd

        from analysis.metrics import at_temperature

        scores: dict[str, float] = {}
        self._guarded("", "score", lambda: scores.update(summary(pd.DataFrame(rows), ks)))
        values = {at_temperature(name, temperature): score for name, score in scores.items()}
        self._each("log", lambda logger: logger.step(step, values))

    def close(self, status: str) -> None:
        self._each("finish", lambda logger: logger.close(status))
        self.open = {}

    def _start(self, name: str, make: Callable[[], Logger]) -> None:
        self.open[name] = make()

    def _each(self, verb: str, act: Callable[[Logger], None]) -> None:
        for name, logger in list(self.open.items()):
            self._guarded(name, verb, partial(act, logger))

    def _guarded(self, name: str, verb: str, act: Callable[[], object]) -> None:
        try:
            act()
        except Exception as error:
            self.open.pop(name, None)
            who = f"logger={name}" if name else "loggers"
            self.say(f"{who}: could not {verb} ({one_line(error)}); the run continues without it")


def open_loggers(
    config: RunConfig,
    folder: Path,
    settings: dict[str, Any],
    recorded: int,
    say: Callable[[str], None],
) -> Loggers:
    """Open the loggers of a configuration; `recorded`: steps that a resumed run has logged."""
    makers: dict[str, Callable[[], Logger]] = {}
    if config.logger.wandb:
        from experiments.run_dir.wandb_logger import WandbLogger

        makers["wandb"] = lambda: WandbLogger(config, folder, settings, say)
    if config.logger.trackio:
        from experiments.run_dir.trackio_logger import TrackioLogger

        makers["trackio"] = lambda: TrackioLogger(config, folder, settings)
    if config.logger.tensorboard:
        makers["tensorboard"] = lambda: TensorboardLogger(folder, settings, recorded)
    return Loggers(makers, say)


def logged_name(column: str) -> str:
    """Return the name under which loggers show a column of metrics.parquet."""
    return column if column.startswith(UNPREFIXED) or column == "step" else f"train/{column}"


def is_measured(value: Any) -> bool:
    return not (isinstance(value, float) and math.isnan(value))


def summary(samples: pd.DataFrame, ks: Sequence[int]) -> dict[str, float]:
    """Return eval/pass@k and the measures of diversity, as in the report."""
    from analysis.scores import scores

    return {f"eval/{name}": row.mean() for name, row in sorted(scores(samples, ks).items())}


class TensorboardLogger:
    """Event files in the run folder; `tensorboard --logdir outputs` shows all runs.

    A resumed run drops the events after its checkpoint.
    """

    def __init__(self, folder: Path, settings: dict[str, Any], recorded: int) -> None:
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ImportError as error:
            raise UserError("TensorBoard is missing; pip install -e '.[tensorboard]'") from error
        self.writer = SummaryWriter(
            str(folder / "tensorboard"), purge_step=recorded + 1 if recorded else None
        )
        self.writer.add_text("config", _as_code(OmegaConf.to_yaml(settings)), recorded)

    def step(self, step: int, values: dict[str, float]) -> None:
        for name, value in values.items():
            if name != "step":
                self.writer.add_scalar(name, value, step)

    def evaluation(
        self, step: int, values: dict[str, float], samples: Sequence[dict[str, Any]]
    ) -> None:
        for name, value in values.items():
            if name.startswith("eval/"):
                self.writer.add_scalar(name, value, step)
        for row in [row for row in samples if row["sample"] == 0][:SHOWN_PROGRAMS]:
            result = f"{row['verdict']}, {row['passed']} of {row['total']} tests"
            text = f"{result}\n\n{_as_code(row['program'])}"
            self.writer.add_text(readable(f"eval/samples/{row['problem']}"), text, step)
        self.writer.flush()

    def close(self, status: str) -> None:
        self.writer.add_text("status", status)
        self.writer.close()


def _as_code(text: str) -> str:
    """Indent text, so that it is shown as it is but for characters that act."""
    return "\n".join(f"    {line}" for line in readable(text).splitlines())
