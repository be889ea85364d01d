"""What a study calls its runs: its arms, from the arms.json that it left beside them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import cache
from pathlib import Path

from analysis.runs import Run


def arm_names(groups: Sequence[Sequence[Run]]) -> list[str] | None:
    """A name for each group of runs; None unless each is one arm of a study, no two the same."""
    names = [{_arms(run.path.parent).get(run.path.name) for run in runs} for runs in groups]
    found = [name for (name, *more) in names if name and not more]
    return found if len(set(found)) == len(groups) else None


@cache
def _arms(folder: Path) -> dict[str, str]:
    """Run folder's name → arm; empty where no study that has ended left its arms."""
    try:
        listed = json.loads((folder / "arms.json").read_text())
        return {Path(one["run"]).name: str(one["arm"]) for one in listed if one["run"]}
    except (OSError, ValueError, TypeError, KeyError):
        return {}
