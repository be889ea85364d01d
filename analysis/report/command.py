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

from analysis.load.run_folders import FILES, RunError, find_runs
from envs.config_parsing import parse_arguments as options_of

if TYPE_CHECKING:
    from analysis.report.sections import Part

HELP = """\
Make a report of run folders: tables, figures and one HTML page.

  python -m analysis.report [runs=WHERE] [out=FOLDER] [skip_damaged=true]

  runs          folders or quoted glob patterns, separated by commas; searched for
                run folders at any depth (default: outputs)
  out           where the report goes; an earlier report there is replaced
                (default: reports/latest)
  skip_damaged  leave damaged run folders out, naming each, instead of stopping
                (default: false)

Experiments (runs of one `name`) are reported each by itself. Writes report.html
(self-contained), table.md, table.csv (a row per group), runs.csv (a row per run),
differences.csv (a row per ordered pair of groups and metric) and tiers.csv,
power.csv (what the design could see), equal_budget.csv,
equal_budget_differences.csv, thresholds.csv, curve.csv and pass_at_k.csv (the data of the
figures), profile.csv, difficulty.csv, verdicts.csv, and the page's figures as .svg (figures/).
"""


@dataclass
class Options:
    """The command line."""

    runs: str = "outputs"
    out: Path = Path("reports/latest")
    skip_damaged: bool = False


def read(options: Options) -> tuple[list[Part], list[str]]:
    """All experiments, and a line for each damaged folder that was skipped. Raises RunError."""
    from analysis.report.sections import parts

    found, skipped = parts(find_runs(filter(None, options.runs.split(","))), options.skip_damaged)
    if not any(len(part.results) for part in found):
        raise RunError(
            f"runs={options.runs}: no run there has an evaluation yet; wait for the "
            "first, or choose other runs"
        )
    return found, skipped


def check_out(out: Path) -> None:
    """Raises ValueError among a run's own files, or where a file is in the way."""
    if out.exists() and not out.is_dir():
        raise ValueError(f"out={out}: is a file; give a folder")
    for folder in (out.resolve(), *out.resolve().parents):
        if any((folder / name).exists() for name in FILES):
            raise ValueError(f"out={out}: lies in the run folder {folder}; give another folder")


def main(arguments: Sequence[str]) -> int:
    """The command; returns the exit code: 0 done, 1 runs at fault, 2 command line at fault, 130
    interrupted."""
    if any(argument in ("-h", "--help", "help") for argument in arguments):
        print(HELP)
        return 0
    try:
        try:
            options = options_of(Options, arguments)
            check_out(options.out)
        except ValueError as error:
            print(f"error: {error} (see --help)", file=sys.stderr)
            return 2
        report(*read(options), options.out)
    except RunError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("interrupted; the same command begins again", file=sys.stderr)
        return 130
    except OSError as error:
        print(f"error: {error.filename}: {error.strerror}; check its permissions", file=sys.stderr)
        return 1
    return 0


def report(parts: Sequence[Part], skipped: Sequence[str], out: Path) -> None:
    """Write the report into `out`; print the main tables, the caveats and where it is."""
    from rich.console import Console

    from analysis.load.run_folders import readable
    from analysis.report.page.write import write
    from analysis.report.render import terminal_table

    write(parts, skipped, out)
    console = Console(highlight=False)
    if not console.is_terminal:
        console.width = max(console.width, 120)
    for part in parts:
        if len(parts) > 1:
            console.rule(part.name, align="left", style="dim")
        for line in (line for one in part.answer for line in one.lines()):
            console.print(readable(line), markup=False)
        if len(part.results):
            console.print(terminal_table(part.results, part.ks))
        for sentence in part.notes:
            console.print(f"note: {readable(sentence)}", markup=False)
    for sentence in skipped:
        console.print(f"note: {readable(sentence)}", markup=False)
    print(f"report: {out / 'report.html'}")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
