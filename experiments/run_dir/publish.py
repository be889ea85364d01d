"""A report as an artifact of Weights & Biases.

python -m experiments.run_dir.publish report=outputs/study-mini/report name=study-mini
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from envs.config_parsing import parse_arguments
from experiments.errors import one_line
from experiments.run_dir.wandb_logger import FINISH_S, mode_here


@dataclass
class Report:
    """The command line."""

    report: str = "reports/latest"  # a folder that `make report` wrote
    name: str = "comparison"
    project: str = "spo-bench"
    entity: str | None = None


def publish(given: Report) -> str:
    """Log the folder as an artifact of a run of its own → what to say of it."""
    import wandb

    folder = Path(given.report)
    if not (folder / "report.html").is_file():
        raise ValueError(f"report={folder}: no report.html in there; `make report` writes one")
    mode = mode_here()
    run = wandb.init(
        project=given.project,
        entity=given.entity,
        name=f"{given.name}-report",
        group=given.name,
        job_type="report",
        dir=str(folder.parent),
        mode=mode,
        settings=wandb.Settings(silent=True, finish_timeout=FINISH_S),
    )
    artifact = wandb.Artifact(f"{given.name}-report", type="report")
    artifact.add_dir(str(folder))
    run.log_artifact(artifact)
    there = run.settings.sync_dir
    run.finish()
    wandb.teardown()  # waits until the file is whole: what is said next is then true
    where = f"wandb sync {there} uploads it" if mode == "offline" else f"project {given.project}"
    return f"W&B artifact {given.name}-report; {where}"


def main(given: Sequence[str]) -> int:
    """The command; returns the exit status."""
    try:
        print(publish(parse_arguments(Report, given)))
    except Exception as error:
        print(f"error: {one_line(error)}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
