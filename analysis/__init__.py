"""Turn run folders into tables, intervals, figures and the report.

Knows the files of a run folder and nothing of how runs are made: it imports no algorithm, no
experiment, and of the environments only the command-line parser `envs.command_line`.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from analysis.pass_at_k import pass_at_k

if TYPE_CHECKING:
    from analysis.study_frames import Study

__all__ = ["open_study", "pass_at_k"]


def open_study(folder: str | Path) -> Study:
    """Open a packed study or a folder of runs as frames, paired differences and figures.

    Raises `analysis.runs.RunError` for a folder without runs, and for a damaged run.
    """
    from analysis.study_frames import read_study

    return read_study(Path(folder))
