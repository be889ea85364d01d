"""The run folder: what is written, when, and how it survives a crash.

`config.yaml` and `run.json` are there before anything heavy starts. Training rows go to a journal,
`metrics.jsonl`, line by line, so that a killed process loses none; at each evaluation and at the
end they are written as `metrics.parquet`, and a run that ends by itself or by Ctrl-C removes the
journal. Parquet and JSON files are replaced whole, never half.
"""

from __future__ import annotations

import datetime
import importlib.metadata
import json
import os
import platform
import subprocess
from dataclasses import asdict
from pathlib import Path
from typing import Any, TextIO

from omegaconf import OmegaConf

from experiments.config import RunConfig
from experiments.errors import UserError

PACKAGES = ("torch", "transformers", "hydra-core", "pandas", "docker", "numpy")


class Records:
    """Writes one new run folder; `finish` gives the last word on how the run ended."""

    def __init__(self, config: RunConfig) -> None:
        self.folder = _new_folder(config)
        self.metrics: list[dict[str, Any]] = []
        self.evals: list[dict[str, Any]] = []
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
            "hardware": _hardware(),
            "pid": os.getpid(),
        }
        (self.folder / "config.yaml").write_text(OmegaConf.to_yaml(asdict(config)))
        self.describe()
        self._journal: TextIO = (self.folder / "metrics.jsonl").open("a", buffering=1)

    def describe(self, **facts: Any) -> None:
        """Add facts to run.json."""
        self.info |= facts
        _replace(self.folder / "run.json", json.dumps(self.info, indent=2) + "\n")

    def step(self, row: dict[str, Any]) -> None:
        """One training step."""
        self.metrics.append(row)
        self._journal.write(json.dumps(row) + "\n")

    def evaluation(self, rows: list[dict[str, Any]]) -> None:
        """One evaluation."""
        self.evals += rows
        self._write_tables()

    def checkpoint(self, name: str) -> Path:
        """The folder for the weights called `name`."""
        folder = self.folder / "checkpoints" / name
        folder.mkdir(parents=True, exist_ok=True)
        return folder

    def finish(self, status: str, error: str | None = None) -> None:
        """status: finished | interrupted | failed."""
        self._write_tables()
        self._journal.close()
        (self.folder / "metrics.jsonl").unlink()
        self.describe(status=status, error=error, ended=_now())

    def _write_tables(self) -> None:
        import pandas as pd

        columns = None if self.metrics else ["step", "reward_mean"]
        tables = {
            "metrics": pd.DataFrame(self.metrics, columns=columns),
            "evals": pd.DataFrame(self.evals),
        }
        for name, table in tables.items():
            path = self.folder / f"{name}.parquet"
            table.to_parquet(path.with_suffix(".tmp"), index=False)
            path.with_suffix(".tmp").replace(path)


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


def _replace(path: Path, text: str) -> None:
    temporary = path.with_suffix(".tmp")
    temporary.write_text(text)
    temporary.replace(path)


def _now() -> str:
    return datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")


def _versions() -> dict[str, str]:
    return {package: importlib.metadata.version(package) for package in PACKAGES}


def _commit() -> str | None:
    """The code's commit, with a plus sign where the working tree differs from it."""
    root = Path(__file__).resolve().parent.parent
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


def _hardware() -> dict[str, Any]:
    import torch

    gpu = torch.cuda.get_device_name(0) if torch.cuda.is_available() else None
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return {
        "machine": platform.machine(),
        "cpus": os.cpu_count(),
        "memory_gb": round(memory / 2**30, 1),
        "gpu": gpu,
    }
