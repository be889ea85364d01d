"""Loggers that show a run elsewhere: Weights & Biases, trackio, TensorBoard, several, or none.

The run folder is the record, so a logger's failure never stops a run. The first failure is printed,
and that logger gets nothing more.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import math
import netrc
import os
import shlex
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol
from urllib.parse import urlsplit

from omegaconf import OmegaConf

from envs.command_line import leaves
from envs.readable import readable
from experiments.config.resume import may_change
from experiments.config.schema import RunConfig
from experiments.errors import UserError, one_line
from experiments.run_dir.ledger import Counts

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
        from experiments.run_dir.loggers import WandbLogger

        makers["wandb"] = lambda: WandbLogger(config, folder, settings, say)
    if config.logger.trackio:
        from experiments.run_dir.loggers import TrackioLogger

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


OUTSIDE_GROUP = ("name", "seed")  # may differ in a group, as may what a resumed run may change
COLUMNS = ("step", "problem", "sample", "verdict", "passed", "total", "tokens", "program")
SHOWN_SAMPLES, MAX_ROWS = 4, 1000  # of a problem, and of a table
FINISH_S = 120.0  # an upload that hangs does not hold up the run


class WandbLogger:
    """One W&B run, whose id is the run folder's name: a resumed run keeps it.

    W&B's step is the training step, so it ignores steps replayed since the checkpoint (they are
    identical). A training step and its evaluation are one row, so any budget can be the x-axis.
    """

    def __init__(
        self,
        config: RunConfig,
        folder: Path,
        settings: dict[str, Any],
        say: Callable[[str], None],
    ) -> None:
        import wandb

        self.wandb, self.say = wandb, say
        mode: Any = mode_here()
        target = config.logger.wandb
        assert target is not None  # open_loggers has checked
        self.run = wandb.init(
            project=target.project,
            entity=target.entity,
            id=folder.name,
            resume=None if mode == "offline" else "allow",
            name=folder.name,
            group=group(config.algo.name, settings),
            job_type="train",
            tags=tags(config),
            dir=str(folder),
            mode=mode,
            config=settings,
            settings=wandb.Settings(silent=True, finish_timeout=FINISH_S),
        )
        self._define(config)

    def _define(self, config: RunConfig) -> None:
        self.run.define_metric("step")
        budgets = [f"budget/{name}" for name in vars(Counts())] + ["time/total_s"]
        for axis in budgets:
            self.run.define_metric(axis)
        for panel in ("train", "eval", "memory", "time"):
            self.run.define_metric(f"{panel}/*", step_metric="step")

    def step(self, step: int, values: dict[str, float]) -> None:
        self.run.log(values, step=step)

    def evaluation(
        self, step: int, values: dict[str, float], samples: Sequence[dict[str, Any]]
    ) -> None:
        columns, data = sample_rows(samples)
        table = self.wandb.Table(columns=columns, data=data)
        self.run.log({"step": step, **values, "eval/samples": table}, step=step)

    def close(self, status: str) -> None:
        self.run.summary["status"] = status
        settings = self.run.settings
        self.run.finish(exit_code=0 if status == "finished" else 1)
        if settings.mode == "offline":
            # a resumed run has a folder for each time, and each holds its own steps alone
            parts = sorted(map(str, Path(settings.sync_dir).parent.glob("offline-run-*")))
            upload = shlex.join(["wandb", "sync", *parts])
            self.say(f"W&B logged offline ({why_offline()}); upload: {upload}")


def sample_rows(samples: Sequence[dict[str, Any]]) -> tuple[list[Any], list[Any]]:
    """Return the columns and rows of the table of samples: the first of each problem."""
    shown = [row for row in samples if row["sample"] < SHOWN_SAMPLES][:MAX_ROWS]
    return list(COLUMNS), [[_shown(row[key]) for key in COLUMNS] for row in shown]


def _shown(value: Any) -> Any:
    return readable(value) if isinstance(value, str) else value


def group(algo: str, settings: dict[str, Any]) -> str:
    """Return the group of runs that differ only in the seed: name, algorithm and a hash.

    What a resumed run may change is not in the hash, so that it stays in its group. As in the
    report, paths inside output_dir (of initial weights) are ignored.
    """
    home = f"{settings['output_dir']}/"
    shared = [
        (key, value)
        for key, value in sorted(leaves(settings))
        if key not in OUTSIDE_GROUP
        and not may_change(key)
        and not (isinstance(value, str) and value.startswith(home))
    ]
    return f"{settings['name']}/{algo}-{hashlib.sha256(repr(shared).encode()).hexdigest()[:6]}"


def tags(config: RunConfig) -> list[str]:
    """Return tags to filter runs by."""
    t = config.train
    stale = {"lag": t.lag, "sync_every": t.sync_every, "offline_share": t.offline_share}
    ordinary = {"lag": 0, "sync_every": 1, "offline_share": 0.0}
    special = [f"{key}={value:g}" for key, value in stale.items() if value != ordinary[key]]
    return [config.algo.name, config.task.name, config.model.name, *special]


def mode_here() -> str:
    """Return online, offline or disabled: WANDB_MODE, else by whether there is a key."""
    import wandb

    base_url = os.environ.get("WANDB_BASE_URL") or wandb.Settings().base_url
    return os.environ.get("WANDB_MODE") or ("online" if has_key(base_url) else "offline")


def why_offline() -> str:
    """Return why `mode_here` is offline."""
    return "WANDB_MODE=offline" if os.environ.get("WANDB_MODE") else "no key is set"


def has_key(base_url: str) -> bool:
    """Whether this user has a key for a server, where W&B looks for it."""
    if os.environ.get("WANDB_API_KEY"):
        return True
    homes = (Path.home() / ".netrc", Path.home() / "_netrc")
    file = os.environ.get("NETRC") or next((str(f) for f in homes if f.is_file()), None)
    try:
        return bool(file and netrc.netrc(file).authenticators(urlsplit(base_url).hostname or ""))
    except (OSError, netrc.NetrcParseError):
        return False


class TrackioLogger:
    """One trackio run, named after the run folder: a resumed run continues it.

    Steps replayed since the checkpoint are logged again. They are identical, so a curve stays the
    same.
    """

    def __init__(self, config: RunConfig, folder: Path, settings: dict[str, Any]) -> None:
        try:
            import trackio
        except ImportError as error:
            raise UserError("trackio is missing; pip install -e '.[trackio]'") from error
        target = config.logger.trackio
        assert target is not None  # open_loggers has checked
        self.trackio = trackio
        with _silence():
            self.run = trackio.init(
                project=target.project,
                name=folder.name,
                group=group(config.algo.name, settings),
                config=settings,
                resume="allow",
                embed=False,
                auto_log_gpu=False,
                auto_log_cpu=False,
            )

    def step(self, step: int, values: dict[str, float]) -> None:
        self.run.log({k: v for k, v in values.items() if k != "step"}, step=step)

    def evaluation(
        self, step: int, values: dict[str, float], samples: Sequence[dict[str, Any]]
    ) -> None:
        columns, data = sample_rows(samples)
        table = self.trackio.Table(columns=columns, data=data)
        self.run.log({**values, "eval/samples": table}, step=step)

    def close(self, status: str) -> None:
        self.run.log({"status": status})
        with _silence():
            self.trackio.finish()


def _silence() -> contextlib.redirect_stdout[io.StringIO]:
    """trackio greets on stdout, which belongs to the run."""
    return contextlib.redirect_stdout(io.StringIO())
