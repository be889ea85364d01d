"""Turn run folders into a report: tables, figures and one HTML page.

    python -m analysis.report runs=outputs out=reports/latest

The runs are only read. Nothing is written before all of them have been read and understood.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from analysis.runs import FILES, Run, RunError, find_runs, load_run

if TYPE_CHECKING:
    import pandas as pd

    from analysis.groups import Group

HELP = """\
Make a report of run folders: tables, figures and one HTML page.

  python -m analysis.report [runs=WHERE] [out=FOLDER] [skip_damaged=true]

  runs          folders or quoted glob patterns, separated by commas; searched for
                run folders at any depth (default: outputs)
  out           where the report goes; an earlier report there is replaced
                (default: reports/latest)
  skip_damaged  leave damaged run folders out, naming each, instead of stopping
                (default: false)

Writes report.html (self-contained), table.md, table.csv (a row per group), runs.csv
(a row per run), curve.csv and pass_at_k.csv (the data of the figures), difficulty.csv,
verdicts.csv, and the figures as .png and .svg.
"""


class UsageError(Exception):
    """A command line that cannot be understood, in one line."""


@dataclass(frozen=True)
class Options:
    """The command line."""

    runs: tuple[str, ...] = ("outputs",)
    out: Path = Path("reports/latest")
    skip_damaged: bool = False


def parse(arguments: Sequence[str]) -> Options:
    """key=value arguments → Options. Raises UsageError, naming what is wrong and what is right."""
    given: dict[str, str] = {}
    for argument in arguments:
        key, equals, value = argument.partition("=")
        if key not in ("runs", "out", "skip_damaged") or not equals or not value:
            raise UsageError(
                f"cannot understand {argument!r}; the arguments are runs=WHERE out=FOLDER "
                "skip_damaged=true"
            )
        given[key] = value
    skip = given.get("skip_damaged", "false")
    if skip not in ("true", "false"):
        raise UsageError(f"skip_damaged={skip}: must be true or false")
    return Options(
        tuple(filter(None, given.get("runs", "outputs").split(","))),
        Path(given.get("out", "reports/latest")),
        skip == "true",
    )


def read(options: Options) -> tuple[list[Run], list[str]]:
    """All runs, and a line for each damaged folder that was skipped. Raises RunError."""
    runs, skipped = [], []
    for path in find_runs(options.runs):
        try:
            runs.append(load_run(path))
        except RunError as error:
            if not options.skip_damaged:
                raise
            skipped.append(f"Damaged and left out: {str(error).partition(';')[0]}.")
    if not any(run.evaluated_steps for run in runs):
        raise RunError(
            f"runs={','.join(options.runs)}: no run there has an evaluation yet; wait for the "
            "first, or choose other runs"
        )
    return runs, skipped


def write(runs: Sequence[Run], skipped: Sequence[str], out: Path) -> tuple[pd.DataFrame, list[str]]:
    """Write the report into `out`; return the result table and the caveats.

    Raises OSError if `out` cannot be written.
    """
    from analysis import aggregate, breakdown, render
    from analysis.caveats import caveats
    from analysis.groups import group_runs

    groups = group_runs(runs)
    stages = aggregate.stages(groups)
    results = aggregate.result_table(stages)
    notes = [*skipped, *caveats(groups, stages)]
    tables = {
        "table.csv": results,
        "runs.csv": aggregate.run_table(groups),
        "curve.csv": aggregate.evaluation_curve(groups),
        "pass_at_k.csv": aggregate.pass_at_k_table(stages),
        "difficulty.csv": breakdown.difficulty_table(stages),
        "verdicts.csv": breakdown.verdict_table(stages).reset_index(),
    }
    out.mkdir(parents=True, exist_ok=True)
    for name, table in tables.items():
        table.to_csv(out / name, index=False)
    (out / "table.md").write_text(render.markdown(results, notes), encoding="utf-8")
    figures = draw(groups, tables, out)
    page = render.html(page_context(groups, tables, notes, figures))
    (out / "report.html").write_text(page, encoding="utf-8")
    return results, notes


def draw(
    groups: Sequence[Group], tables: dict[str, pd.DataFrame], out: Path
) -> list[tuple[str, str]]:
    """Write the figures; return for each its data URI and its caption."""
    from analysis import plots, render
    from analysis.aggregate import X_AXES, reward_curve

    longest = max((len(run.metrics) for group in groups for run in group.runs), default=0)
    window = max(1, longest // 20)
    rewards, curve, results = reward_curve(groups, window), tables["curve.csv"], tables["table.csv"]
    style = plots.styles(dict.fromkeys([*results["label"], *(group.label for group in groups)]))
    at_k = plots.pass_at_k_curves(tables["pass_at_k.csv"], style)
    dots = plots.diversity_dots(results, style)
    drawn = [
        ("pass_at_k", at_k, "pass@k before and after training"),
        ("diversity", dots, "Diversity before and after training, with 95 % intervals"),
    ]
    for x in X_AXES:
        figure = plots.learning_curves(rewards, curve, x, window, style)
        drawn.append((f"curves_{x}", figure, f"Learning curves against {plots.X_TITLES[x]}"))
    return [
        (render.data_uri(plots.save(figure, out / name)[1]), caption)
        for name, figure, caption in drawn
        if figure is not None
    ]


def page_context(
    groups: Sequence[Group],
    tables: dict[str, pd.DataFrame],
    notes: Sequence[str],
    figures: Sequence[tuple[str, str]],
) -> dict[str, object]:
    """What the HTML template shows."""
    from datetime import UTC, datetime

    from analysis import render
    from analysis.caveats import settings_that_differ

    results = tables["table.csv"]
    return {
        "made": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "groups": groups,
        "results": results.to_dict("records"),
        "evaluated": render.evaluated(results),
        "metrics": render.measured_metrics(results),
        "budgets": render.budget_cells(results),
        "runs": tables["runs.csv"].to_dict("records"),
        "notes": notes,
        "figures": figures,
        "settings": settings_that_differ(groups),
        "difficulties": render.difficulty_cells(tables["difficulty.csv"]),
        "verdicts": render.verdict_cells(tables["verdicts.csv"].set_index("label")),
    }


def check_out(out: Path) -> None:
    """Refuse to write among a run's own files, or where a file is in the way."""
    if out.exists() and not out.is_dir():
        raise UsageError(f"out={out}: is a file; give a folder")
    for folder in (out.resolve(), *out.resolve().parents):
        if any((folder / name).exists() for name in FILES):
            raise UsageError(f"out={out}: lies in the run folder {folder}; give another folder")


def main(arguments: Sequence[str]) -> int:
    """The command; returns the exit code: 0 done, 1 runs at fault, 2 command line at fault."""
    if any(argument in ("-h", "--help", "help") for argument in arguments):
        print(HELP)
        return 0
    try:
        options = parse(arguments)
        check_out(options.out)
        runs, skipped = read(options)
        results, notes = write(runs, skipped, options.out)
    except UsageError as error:
        print(f"error: {error} (see --help)", file=sys.stderr)
        return 2
    except RunError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    except OSError as error:
        print(f"error: {error.filename}: {error.strerror}; check its permissions", file=sys.stderr)
        return 1
    show(results, notes, options.out)
    return 0


def show(results: pd.DataFrame, notes: Sequence[str], out: Path) -> None:
    """Print the main table, the caveats and where the report is."""
    from rich.console import Console

    from analysis.render import terminal_table

    console = Console(highlight=False)
    if not console.is_terminal:
        console.width = max(console.width, 100)
    console.print(terminal_table(results))
    for sentence in notes:
        console.print(f"note: {sentence}", markup=False)
    print(f"report: {out / 'report.html'}")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
