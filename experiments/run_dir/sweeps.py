"""A sweep's jobs: how each one ended, kept on disk as it ends, and the table at the end.

The same command again finds the runs it made before, by their configuration, and does what is left.
Jobs may run in other processes (Hydra's launchers), so they leave word in a folder of the sweep.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from omegaconf import OmegaConf

if TYPE_CHECKING:
    from experiments.config.schema import RunConfig
    from experiments.trainer import Outcome


def new_folder(output_dir: str) -> Path:
    """Where the jobs of this sweep leave word."""
    stamp = time.strftime("%Y%m%d-%H%M%S")
    return Path(output_dir).absolute() / ".sweeps" / f"{stamp}-{os.getpid()}"


def begun(config: RunConfig) -> Path | None:
    """The last run folder of just this configuration, whatever became of it."""
    from experiments.config.resolve_defaults import resolve_defaults
    from experiments.policy.loading import pick_device

    picked = resolve_defaults(config, str(pick_device(config.model.device)))
    wanted = OmegaConf.to_yaml(asdict(picked))
    found = [
        file.parent
        for file in (Path(config.output_dir) / config.name).glob("*/config.yaml")
        if file.read_text() == wanted and (file.parent / "run.json").is_file()
    ]
    return max(found, key=lambda folder: (folder / "config.yaml").stat().st_mtime, default=None)


def known(folder: Path) -> Outcome:
    """The outcome of a run that finished before."""
    from experiments.trainer import Outcome

    scores = json.loads((folder / "run.json").read_text()).get("pass_at", {})
    return Outcome(folder, "finished", pass_at={int(k): score for k, score in scores.items()})


def provenance(folder: Path) -> str:
    """When and from which code a run was made: a later edit of the code is not in it."""
    info = json.loads((folder / "run.json").read_text())
    return f"{folder}, of {info['ended']}, commit {info['commit']}; name=ANOTHER runs it anew"


def keep(folder: Path, number: int, outcome: Outcome) -> None:
    """Job `number` of the sweep ended."""
    found = {
        "status": outcome.status,
        "folder": str(outcome.folder) if outcome.folder else None,
        "error": outcome.error,
        "pass_at": outcome.pass_at,
    }
    (folder / f"{number}.json").write_text(json.dumps(found) + "\n")


def labels(jobs: Sequence[Sequence[str]]) -> list[str]:
    """What sets each job apart: its overrides that not all jobs share."""
    shared = set.intersection(*(set(job) for job in jobs))
    return [" ".join(o for o in job if o not in shared) or "(as given)" for job in jobs]


def show(folder: Path, jobs: Sequence[Sequence[str]]) -> int:
    """Print a table of all jobs, a line for each that failed and how to go on → how many failed."""
    from rich.console import Console
    from rich.table import Table

    found = [_read(folder / f"{number}.json") for number in range(len(jobs))]
    ks = sorted({int(k) for job in found for k in job["pass_at"]})
    table = Table("job", "status", *(f"pass@{k}" for k in ks), "run folder")
    for label, job in zip(labels(jobs), found, strict=True):
        scores = [job["pass_at"].get(str(k)) for k in ks]
        cells = ["–" if score is None else f"{score:.3f}" for score in scores]
        table.add_row(label, job["status"], *cells, job["folder"] or "–")
    console = Console(highlight=False)
    if not console.is_terminal:
        console.width = 1000  # for files and pipes: a row is a line
    console.print(table)
    failed = [(n, job) for n, job in enumerate(found) if job["status"] == "failed"]
    for number, job in failed:
        print(f"failed: {labels(jobs)[number]}: {job['error']}")
    parents = dict.fromkeys(str(Path(job["folder"]).parent) for job in found if job["folder"])
    if parents:
        print(f"report: make report RUNS={','.join(parents)}")
    return len(failed)


def _read(file: Path) -> dict[str, Any]:
    if not file.is_file():
        return {"status": "not run", "folder": None, "error": None, "pass_at": {}}
    return json.loads(file.read_text())
