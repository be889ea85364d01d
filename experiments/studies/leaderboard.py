"""One table over all studies whose results are in the repository: docs/results/leaderboard.md.

    python -m experiments.studies.leaderboard [root=.]

Arms stand together if they were evaluated on the same problems at the same temperature. Doubtful
rows are rows too, with what is doubtful in a column. `make check-results` compares the page with
the counts.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from analysis.markdown import table
from analysis.packed import study_file
from analysis.runs import RunError, is_packed
from envs.command_line import parse_arguments, quiet_when_unread
from experiments.errors import UserError
from experiments.studies.figures import count, interval
from experiments.studies.results.results import Results
from experiments.studies.study import Study, read

if TYPE_CHECKING:
    from analysis.runs import Run

PAGES = "docs/results"
LEADERBOARD = f"{PAGES}/leaderboard.md"
METRICS = ("pass@1", "pass@10", "distinct_of_5")
COLUMNS = (
    *("arm", "starts from", "study", "seeds", "steps", *METRICS),
    *("generated tokens", "judged programs", "commit", "doubts"),
)
INTRODUCTION = """\
# Leaderboard

Written by `python -m experiments.studies.leaderboard` from the counts of all studies beside this \
page; `make check-results` compares it with them.

- Rows are ordered by pass@1. Values are means over seeds with 95 % intervals over seeds and \
problems. Neighbours are seldom separated, and then their order says nothing: the study's page \
has the tests. distinct_of_5 is a mean over the problems that the arm solves often enough, so \
over others for each arm.
- Tokens and programs are those of one run's training, without tuning, evaluations and the \
training of the weights that it starts from.
- An arm's settings are on its study's page. The runs' whole configurations, environment and \
counts are in the study's folder (`runs.parquet`, `counts.parquet`).
"""


@dataclass
class Options:
    """The command line."""

    root: Path = Path(".")  # the repository


@dataclass(frozen=True)
class Track:
    """What two rows must share to stand in one table."""

    task: str
    split: str
    temperature: float
    problems: str  # digest of the data

    def title(self) -> str:
        return (
            f"## task={self.task}, split {self.split}, temperature {self.temperature:g}\n\n"
            f"Problems: data hash `{self.problems}`."
        )


def leaderboard(root: Path, load: Callable[[Path], Results] = Results) -> str:
    """The page. `load` reads a packed study. Raises UserError if there is none under `root`."""
    folders = sorted(file.parent for file in (root / PAGES).glob("*/arms.json"))
    tracks: dict[Track, list[tuple[float, list[str]]]] = {}
    for folder in filter(is_packed, folders):
        for track, score, row in _rows(folder, load(folder)):
            tracks.setdefault(track, []).append((score, row))
    if not tracks:
        raise UserError(f"root={root}: no packed study in {PAGES}; give the repository's folder")
    parts = [INTRODUCTION.strip()]
    for track in sorted(tracks, key=lambda each: (each.task, each.split)):
        rows = sorted(tracks[track], key=lambda each: each[0], reverse=True)
        parts += [track.title(), table(COLUMNS, [row for _, row in rows])]
    return "\n\n".join(parts) + "\n"


def _rows(folder: Path, results: Results) -> Iterator[tuple[Track, float, list[str]]]:
    """(track, pass@1, cells) of each arm and base model of a packed study."""
    study = read(str(study_file(folder)))
    link = f"[{study.name.removeprefix('study-')}]({folder.name}.md)"
    of_arm = {
        arm: [run for run in results.arms if run["arm"] == arm and not run["trial"]]
        for arm in study.arms
    }
    finished = [run for runs in of_arm.values() for run in runs if run["status"] == "finished"]
    first = results.source.run(Path(finished[0]["run"]).name)
    track = _track(first)
    for arm, runs in of_arm.items():
        done = [run for run in runs if run["status"] == "finished"]
        model = (
            results.source.run(Path(done[0]["run"]).name).config["model"]["name"] if done else "–"
        )
        values = results.row(results.label.get(arm)) or {}
        spent = (count(values.get(key)) for key in ("generated_tokens", "judged_programs"))
        doubts = "; ".join(_doubts(study, results, runs, done)) or "–"
        commits = ", ".join(_commits(results, arm)) or "–"
        size = (str(len(done)), count(values.get("step")))
        cells = [f"`{arm}`", model, link, *size, *_scores(values), *spent, commits, doubts]
        yield track, _order(values), cells
    for name, label in results.bases.items():
        values = results.row(label) or {}
        model = first.config["model"]["name"] if name == "base" else name.removeprefix("base ")
        yield track, _order(values), ["base", model, link, "–", "0", *_scores(values), *"00––"]


def _track(run: Run) -> Track:
    return Track(
        task=run.config["task"]["name"],
        split=run.config["eval"]["split"],
        temperature=float(run.config["eval"]["temperature"]),
        problems=str(run.info["data_hash"]),
    )


def _doubts(
    study: Study,
    results: Results,
    runs: Sequence[dict[str, Any]],
    done: Sequence[dict[str, Any]],
) -> Iterator[str]:
    """What a reader should know before trusting the row."""
    planned = len(study.seeds)
    if len(done) < planned:
        failed = sum(run["status"] == "failed" for run in runs)
        yield f"{len(done)} of {planned} seeds" + f", {failed} failed" * bool(failed)
    if planned < 5:
        yield f"{planned} seeds planned"
    if not study.final:
        yield "evaluated on problems for choosing"
    commits = _commits(results, runs[0]["arm"]) if runs else []
    if len(commits) > 1:
        yield "runs of several commits"
    if any(commit.endswith("+") for commit in commits):
        yield "uncommitted code"


def _commits(results: Results, arm: str) -> list[str]:
    rows = results.runs[results.runs["group"] == results.label.get(arm)]
    return sorted(rows["commit"].dropna().astype(str).unique())


def _order(values: dict[Any, Any]) -> float:
    score = values.get("pass@1", math.nan)
    return -math.inf if math.isnan(score) else float(score)


def _scores(values: dict[Any, Any]) -> list[str]:
    return [interval(values, metric, f"{metric}_low", f"{metric}_high") for metric in METRICS]


def main(arguments: Sequence[str]) -> int:
    """Run the command; returns the exit status."""
    try:
        options = parse_arguments(Options, arguments)
        text = leaderboard(options.root)
    except (UserError, RunError, ValueError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    (options.root / LEADERBOARD).write_text(text)
    print(options.root / LEADERBOARD)
    return 0


if __name__ == "__main__":
    with quiet_when_unread():
        sys.exit(main(sys.argv[1:]))
