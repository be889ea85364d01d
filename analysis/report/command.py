"""Turn run folders, or packed studies, into a report: tables, figures and one HTML page.

    python -m analysis.report runs=outputs out=reports/latest

The runs are only read. Nothing is written before all of them have been read.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from pydantic import Field

from analysis.load.run_folders import FILES, RunError, find_runs
from envs.command_line import print_help, quiet_when_unread, wants_help
from envs.command_line import did_you_mean, parse_arguments
from envs.readable import readable

if TYPE_CHECKING:
    from analysis.report.experiment import Section

HELP = """\
Make a report of run folders: tables, figures and one HTML page.

  python -m analysis.report [runs=WHERE] [out=FOLDER] [margin=0.03] [control=GROUP]
                            [skip_damaged=true]

Each experiment (the runs of one `name`) is reported separately. A packed study, such as
docs/results/study-mini, is one too, with the margin and the control of its file; it has no
programs. Writes report.html
(self-contained), table.md, table.csv (a row per group), runs.csv (a row per run),
settings.csv (a row per group and setting), differences.csv (a row per ordered pair of groups
and metric), contrasts.csv (the pairs that a study named before its runs), control.csv (each group
minus the control), letters.csv and tiers.csv, power.csv (what the design could detect),
equal_budget.csv, equal_budget_differences.csv, thresholds.csv, curve.csv, training.csv and
pass_at_k.csv (the data of the figures), profile.csv, difficulty.csv, verdicts.csv, and the page's
figures as .svg in figures/. Of conversations with several turns, also turns.csv,
turn_differences.csv and turn_curve.csv. Of a single run folder, the page begins with what the run
learnt and spent.
"""


@dataclass
class Options:
    """The command line."""

    # folders or quoted glob patterns, separated by commas; searched for run folders, and packed
    # studies, at any depth
    runs: str = "outputs"
    out: Path = Path("reports/latest")  # folder of the report; an earlier report is replaced
    # a difference in pass@k up to which two groups are equal, named before the runs; null: none, or
    # that of a packed study
    margin: Annotated[float, Field(gt=0, lt=1)] | None = None
    control: str | None = None  # the label of the group that each other one is compared with
    skip_damaged: bool = False  # skip damaged run folders and list them, instead of stopping


def main(arguments: Sequence[str]) -> int:
    """Run the command and return the exit code.

    0: done; 1: bad runs; 2: bad command line; 130: interrupted.
    """
    if wants_help(arguments):
        print_help(Options, HELP)
        return 0
    try:
        try:
            options = parse_arguments(Options, arguments)
            check_out(options.out)
        except ValueError as error:
            print(f"error: {error} (see --help)", file=sys.stderr)
            return 2
        sections, skipped = read_sections(options)
        report(sections, skipped, options.out)
    except RunError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("interrupted; run the same command to start again", file=sys.stderr)
        return 130
    except OSError as error:
        print(f"error: {error.filename}: {error.strerror}; check its permissions", file=sys.stderr)
        return 1
    return 0


def check_out(out: Path) -> None:
    """Check the output folder. Raises ValueError if it is a file or inside a run folder."""
    if out.exists() and not out.is_dir():
        raise ValueError(f"out={out}: is a file; give a folder")
    for folder in (out.resolve(), *out.resolve().parents):
        if any((folder / name).exists() for name in FILES):
            raise ValueError(f"out={out}: lies in the run folder {folder}; give another folder")


def read_sections(options: Options) -> tuple[list[Section], list[str]]:
    """Return all sections, and a line per damaged folder that was skipped. Raises RunError."""
    from analysis.report.experiment import Plan
    from analysis.report.sections import build_sections

    paths = find_runs(filter(None, options.runs.split(",")))
    plan = Plan(options.margin, options.control)
    sections, skipped = build_sections(paths, options.skip_damaged, plan)
    if not any(len(section.results) for section in sections):
        raise RunError(
            f"runs={options.runs}: no run there has an evaluation yet; wait for the "
            "first, or choose other runs"
        )
    if options.control is not None:
        check_control(options.control, sections)
    return sections, skipped


def check_control(control: str, sections: Sequence[Section]) -> None:
    """Raise RunError if the control is no trained group of any experiment."""
    results = [section.results for section in sections if len(section.results)]
    labels = dict.fromkeys(
        label for table in results for label in table["label"][table["step"] > 0]
    )
    if control not in labels:
        near = did_you_mean(control, list(labels))
        listed = ", ".join(labels) or "none"
        raise RunError(f"control={control}: no such group; {near}the groups are: {listed}")


def report(sections: Sequence[Section], skipped: Sequence[str], out: Path) -> None:
    """Write the report into `out`; print the main tables, the caveats and its path."""
    from rich.console import Console

    from analysis.report.page.write import write_report
    from analysis.report.render import terminal_table

    write_report(sections, skipped, out)
    console = Console(highlight=False)
    if not console.is_terminal:
        console.width = max(console.width, 120)
    for section in sections:
        if len(sections) > 1:
            console.rule(section.name, align="left", style="dim")
        for line in (line for headline in section.headlines for line in headline.lines()):
            console.print(readable(line), markup=False)
        if len(section.results):
            console.print(terminal_table(section.results, section.ks))
        for sentence in section.notes:
            console.print(f"note: {readable(sentence)}", markup=False)
    for sentence in skipped:
        console.print(f"note: {readable(sentence)}", markup=False)
    print(f"report: {out / 'report.html'}")


if __name__ == "__main__":
    with quiet_when_unread():
        sys.exit(main(sys.argv[1:]))
