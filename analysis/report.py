"""Turn run folders, or packed studies, into a report: tables, figures and one HTML page.

    python -m analysis.report runs=outputs out=reports/latest

Each experiment (the runs of one `name`) is reported separately: read, scored and laid out by
itself, so that only its section stays in memory; many runs are read on all cores. The runs are only
read, and nothing is written before all of them have been.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from pydantic import Field

from analysis.experiment import UNPLANNED, Plan, read_experiment, run_command
from analysis.page import build_section, write_report
from analysis.programs import parallel_map
from analysis.rendering import Section, finding_lines, markdown_table, result_cells
from analysis.runs import FILES, RunError, experiment_of, find_runs, is_packed
from envs.command_line import did_you_mean, quiet_when_unread
from envs.messages import readable

NOT_PRINTED = ("distinct_ratio", "distinct_2", "token_entropy")  # metrics
MIN_PARALLEL = 100  # runs from which worker processes pay


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
    """Run the command and return the exit code of `run_command`."""
    return run_command(Options, check_out, report, arguments)


def report(options: Options) -> int:
    """Read the runs, and write and print the report. Raises RunError if there is none to make."""
    plan = Plan(options.margin, options.control)
    paths = find_runs(filter(None, options.runs.split(",")))
    sections, skipped = build_sections(paths, options.skip_damaged, plan)
    results = [section.results for section in sections if len(section.results)]
    if not results:
        raise RunError(
            f"runs={options.runs}: no run there has an evaluation yet; wait for the first, or "
            "choose other runs"
        )
    labels = dict.fromkeys(x for table in results for x in table["label"][table["step"] > 0])
    if options.control is not None and options.control not in labels:
        near, listed = did_you_mean(options.control, list(labels)), ", ".join(labels) or "none"
        raise RunError(f"control={options.control}: no such group; {near}the groups: {listed}")
    write_report(sections, skipped, options.out)
    print_report(sections, skipped, options.out)
    return 0


def check_out(options: Options) -> None:
    """Check the output folder. Raises ValueError if it is a file or inside a run folder."""
    out = options.out
    if out.exists() and not out.is_dir():
        raise ValueError(f"out={out}: is a file; give a folder")
    for folder in (out.resolve(), *out.resolve().parents):
        if any((folder / name).exists() for name in FILES):
            raise ValueError(f"out={out}: lies in the run folder {folder}; give another folder")


def print_report(sections: Sequence[Section], skipped: Sequence[str], out: Path) -> None:
    """Print the findings, the main metrics and the caveats of each section, and the page's path."""
    for section in sections:
        lines = [f"## {section.name}"] if len(sections) > 1 else []
        lines += finding_lines(section.findings)
        if len(section.results):
            cells = result_cells(section.results, section.ks, but=NOT_PRINTED)
            lines += ["", markdown_table(*cells), ""]
        print(readable("\n".join([*lines, *(f"note: {sentence}" for sentence in section.notes)])))
    for sentence in skipped:
        print(f"note: {readable(sentence)}")
    print(f"report: {out / 'report.html'}")


Job = tuple[str, str, Sequence[Path], float, bool, Plan]  # the arguments of `_section`


def _section(job: Job) -> tuple[Section | None, list[str]]:
    """Return a section, None if all runs are damaged, and a line per damaged run."""
    name, slug, paths, page_share, skip_damaged, plan = job
    experiment, skipped = read_experiment(name, paths, plan, skip_damaged)
    if experiment is None:
        return None, skipped
    return build_section(name, slug, experiment, page_share), skipped


def build_sections(
    paths: Sequence[Path], skip_damaged: bool, plan: Plan = UNPLANNED
) -> tuple[list[Section], list[str]]:
    """Return the sections of these run folders by name, and a line per damaged one left out.

    A packed study is a section by itself. Raises RunError for a damaged run, unless these are to be
    skipped.
    """
    by_name: dict[tuple[str, str], list[Path]] = {}
    for path in paths:
        key = experiment_of(path), str(path) if is_packed(path) else ""
        by_name.setdefault(key, []).append(path)
    keys = sorted(by_name)
    slugs: list[str] = []  # distinct names that are safe in a path and in a link
    for name, _ in keys:
        safe = re.sub(r"[^\w-]+", "-", name)[:80].strip("-") or "runs"
        slugs.append(safe if safe not in slugs else f"{safe}-{len(slugs)}")
    jobs: list[Job] = [
        (key[0], slug, by_name[key], 1 / len(keys), skip_damaged, plan)
        for key, slug in zip(keys, slugs, strict=True)
    ]
    results = parallel_map(_section, jobs, len(jobs) > 1 and len(paths) >= MIN_PARALLEL)
    sections = [section for section, _ in results if section]
    return sections, [line for _, skipped in results for line in skipped]


if __name__ == "__main__":
    with quiet_when_unread():
        sys.exit(main(sys.argv[1:]))
