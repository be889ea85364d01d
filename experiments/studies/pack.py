"""Pack a study for the repository: counts from which its page is written and checked.

    python -m experiments.studies.pack study=mini folder=outputs/study-mini \\
        out=docs/results/study-mini [archive=study-mini.tar.zst] [weights=true]

Finished runs of arms.json are packed, trials are not. The files are described in
analysis/packed.py. An archive holds slim run folders with every sample, from
which `python -m analysis.report` and `python -m experiments.studies.write` give the same tables
and page.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from envs.command_line import parse_arguments, quiet_when_unread
from experiments.errors import UserError
from experiments.studies.cli import check_place
from experiments.studies.results.packing import compression_of, pack, write_archive
from experiments.studies.results.results import LESS
from experiments.studies.study import Study, file_of, read


@dataclass
class Options:
    """The command line."""

    study: str = "mini"  # a file of conf/study/, or FILE.yaml
    folder: Path = Path("outputs/study-mini")  # where the study ran
    out: Path = Path("docs/results/study-mini")  # folder of the packed study
    archive: Path | None = None  # FILE.tar.zst or FILE.tar.gz: slim run folders, without weights
    weights: bool = False  # the archive also has each run's final weights


def main(arguments: Sequence[str]) -> int:
    """Run the command; returns the exit status."""
    from analysis.runs import RunError

    try:
        options = parse_arguments(Options, arguments)
        check_place("out", options.out)
        if options.archive:
            check_place("archive", options.archive.parent)
        _check_metrics(read(options.study))
        if options.archive:
            compression_of(options.archive)
        for file, size in pack(file_of(options.study), options.folder, options.out).items():
            print(f"{options.out / file}: {size:,} bytes")
        if options.archive:
            size = write_archive(options.folder, options.archive, options.weights)
            print(f"{options.archive}: {size:,} bytes")
    except (UserError, ValueError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except RunError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


def _check_metrics(study: Study) -> None:
    """Raise UserError if the page needs a metric that does not follow from counts."""
    from analysis.packed import is_counted

    for metric in (*(claim.metric for claim in study.claims), study.order_by):
        if metric and metric not in LESS and not is_counted(metric):
            raise UserError(
                f"study={study.name}: {metric} of its claims or order_by depends on the programs, "
                "which a packed study does not have"
            )


if __name__ == "__main__":
    with quiet_when_unread():
        sys.exit(main(sys.argv[1:]))
