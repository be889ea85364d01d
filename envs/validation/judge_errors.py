"""The judge's error rates: right programs that it rejects, and wrong ones that it accepts.

`python -m envs.validate` judges a data set's own programs and keeps the counts of each problem in
the cache folder, under the judge's version. A run looks its problems up by their content, tests and
programs included, and judges nothing for it.

Intervals are Wilson's, at 95 %. They take programs for independent, although those of one problem
are not: they are too narrow where few problems have most of the errors.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from envs.cache_folder import cache_root, locked_folder

_Z = 1.959964  # of the normal distribution, two-sided 95 %


@dataclass(frozen=True, slots=True)
class ProgramCounts:
    """A problem's own programs by their label and the judge's verdict."""

    right: int = 0
    right_rejected: int = 0
    wrong: int = 0
    wrong_accepted: int = 0

    @property
    def programs(self) -> int:
        return self.right + self.wrong


@dataclass(frozen=True, slots=True)
class ErrorRates:
    """Error rates over problems; an interval is (share, low, high), None without programs."""

    problems: int  # asked about
    measured: int  # of them with programs that were judged
    counts: ProgramCounts

    @property
    def false_rejects(self) -> tuple[float, float, float] | None:
        return wilson_interval(self.counts.right_rejected, self.counts.right)

    @property
    def false_accepts(self) -> tuple[float, float, float] | None:
        return wilson_interval(self.counts.wrong_accepted, self.counts.wrong)

    def record(self) -> dict[str, object]:
        """Return plain values for run.json."""
        sizes = {"problems": self.problems, "measured_problems": self.measured}
        rates = {"false_rejects": self.false_rejects, "false_accepts": self.false_accepts}
        return sizes | asdict(self.counts) | rates


def wilson_interval(count: int, total: int) -> tuple[float, float, float] | None:
    """Return (share, low, high) of `count` in `total` (Wilson 1927), or None if `total` is 0."""
    if not total:
        return None
    share, square = count / total, _Z * _Z
    middle = share + square / (2 * total)
    half = _Z * math.sqrt(share * (1 - share) / total + square / (4 * total * total))
    scale = 1 + square / total
    return share, max(0.0, (middle - half) / scale), min(1.0, (middle + half) / scale)


def total_rates(problems: int, counted: Iterable[ProgramCounts]) -> ErrorRates:
    """Add counts up, of which problems without programs do not count as measured."""
    found = [counts for counts in counted if counts.programs]
    total = ProgramCounts(
        right=sum(counts.right for counts in found),
        right_rejected=sum(counts.right_rejected for counts in found),
        wrong=sum(counts.wrong for counts in found),
        wrong_accepted=sum(counts.wrong_accepted for counts in found),
    )
    return ErrorRates(problems, len(found), total)


def known_rates(digests: Sequence[str], judge_version: str) -> ErrorRates:
    """Return what was measured on the problems of these content digests by this judge."""
    known = _read(_file(judge_version))
    return total_rates(len(digests), (known[digest] for digest in digests if digest in known))


def keep_counts(counts: dict[str, ProgramCounts], judge_version: str) -> None:
    """Store counts by content digest, unless more programs of the problem were judged before."""
    import pyarrow as pa
    import pyarrow.parquet

    file = _file(judge_version)
    with locked_folder(file.parent):
        known = _read(file)
        for digest, count in counts.items():
            if count.programs >= known.get(digest, ProgramCounts()).programs:
                known[digest] = count
        rows = [{"digest": digest, **asdict(count)} for digest, count in sorted(known.items())]
        temporary = file.with_suffix(".tmp")
        pyarrow.parquet.write_table(pa.Table.from_pylist(rows), temporary)
        temporary.replace(file)


def _file(judge_version: str) -> Path:
    return cache_root() / "judge_errors" / f"{judge_version}.parquet"


def _read(file: Path) -> dict[str, ProgramCounts]:
    """Read the counts by digest; a file that is missing or damaged has none."""
    import pyarrow.parquet

    try:
        rows = pyarrow.parquet.read_table(file).to_pylist()
        return {row.pop("digest"): ProgramCounts(**row) for row in rows}
    except (OSError, ValueError, KeyError, TypeError):
        return {}
