"""trackio: metrics in a local database that `trackio show` opens in a browser.

Its environment variables TRACKIO_SPACE_ID and TRACKIO_SERVER_URL send them elsewhere.
"""

from __future__ import annotations

import contextlib
import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from experiments.config.schema import RunConfig
from experiments.errors import UserError
from experiments.run_dir.wandb_logger import group, sample_rows


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
