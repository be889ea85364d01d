"""Where metrics go besides the run folder: Weights & Biases, TensorBoard, both, or nowhere.

The run folder is the record; a logger shows it elsewhere. So none of its failures stops a run: the
first is said, and that logger gets nothing more.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from experiments.config.schema import RunConfig
from experiments.errors import one_line

if TYPE_CHECKING:
    import pandas as pd

OWN = ("budget/", "time/", "memory/", "eval/")  # columns of a step's row that keep their names


class Logger(Protocol):
    """What shows a run. Rows are those of metrics.parquet and evals.parquet."""

    def step(self, step: int, values: dict[str, float]) -> None:
        """One training step: train/…, budget/…, time/…, memory/…; at evaluations eval/kl_ref."""

    def evaluation(
        self, step: int, values: dict[str, float], samples: Sequence[dict[str, Any]]
    ) -> None:
        """eval/…, budget/…, time/…, memory/…; and every sample."""

    def close(self, status: str) -> None:
        """status: finished | interrupted | failed."""


class Loggers:
    """All that the configuration names, each kept from stopping the run."""

    def __init__(self, makers: dict[str, Callable[[], Logger]], say: Callable[[str], None]) -> None:
        self.say, self.open = say, {}
        for name, make in makers.items():
            self._guarded(name, "start", lambda name=name, make=make: self._add(name, make()))

    def step(self, row: dict[str, Any]) -> None:
        """A row of metrics.parquet."""
        if self.open:
            values = {named(key): value for key, value in row.items() if told(value)}
            self._each("log", lambda logger: logger.step(row["step"], values))

    def evaluation(
        self,
        step: int,
        rows: Sequence[dict[str, Any]],
        ks: Sequence[int],
        spent: dict[str, float],
    ) -> None:
        """The rows of an evaluation; spent: the ledger's columns."""
        if not self.open:
            return
        import pandas as pd

        scores: dict[str, float] = {}
        self._guarded("", "score", lambda: scores.update(summary(pd.DataFrame(rows), ks)))
        self._each("log", lambda logger: logger.evaluation(step, scores | spent, rows))

    def close(self, status: str) -> None:
        """The last word."""
        self._each("finish", lambda logger: logger.close(status))
        self.open = {}

    def _add(self, name: str, logger: Logger) -> None:
        self.open[name] = logger

    def _each(self, what: str, act: Callable[[Logger], None]) -> None:
        for name, logger in list(self.open.items()):
            self._guarded(name, what, lambda logger=logger: act(logger))

    def _guarded(self, name: str, what: str, act: Callable[[], object]) -> None:
        try:
            act()
        except Exception as error:
            self.open.pop(name, None)
            told = f"logger={name}" if name else "loggers"
            self.say(f"{told}: could not {what} ({one_line(error)}); the run goes on without it")


def open_loggers(
    config: RunConfig,
    folder: Path,
    settings: dict[str, Any],
    recorded: int,
    say: Callable[[str], None],
) -> Loggers:
    """Those that the configuration names; `recorded`: steps whose rows are behind a run."""
    makers: dict[str, Callable[[], Logger]] = {}
    if config.logger.wandb:
        from experiments.run_dir.wandb_logger import WandbLogger

        makers["wandb"] = lambda: WandbLogger(config, folder, settings, say)
    if config.logger.tensorboard:
        from experiments.run_dir.tensorboard_logger import TensorboardLogger

        makers["tensorboard"] = lambda: TensorboardLogger(folder, settings, recorded)
    return Loggers(makers, say)


def named(column: str) -> str:
    """What a column of metrics.parquet is called elsewhere."""
    return column if column.startswith(OWN) or column == "step" else f"train/{column}"


def told(value: Any) -> bool:
    """Not what was not measured."""
    return not (isinstance(value, float) and math.isnan(value))


def summary(samples: pd.DataFrame, ks: Sequence[int]) -> dict[str, float]:
    """eval/pass@k and the measures of diversity, as the report has them."""
    from analysis.metrics.scores import scores

    return {f"eval/{name}": row.mean() for name, row in sorted(scores(samples, ks).items())}
