"""Weights & Biases: as WANDB_MODE says, else online if a key is set; `wandb sync` uploads later."""

from __future__ import annotations

import hashlib
import netrc
import os
import shlex
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from envs.command_line import leaves
from envs.readable import readable
from experiments.config.resume import may_change
from experiments.config.schema import RunConfig
from experiments.run_dir.budget import Counts

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
