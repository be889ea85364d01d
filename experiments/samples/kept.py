"""Every sample that a run trained on, in its folder: an Arrow file for each batch.

A file is whole or not there, and written before the batch is learnt from; a run that goes on cuts
those after its checkpoint. `pyarrow.dataset.dataset(FOLDER, format="arrow")` reads all of them.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa

from experiments.errors import UserError, one_line
from experiments.runs.files import read_arrow, whole, write_arrow
from experiments.samples.columns import SCHEMA, table_of
from experiments.samples.sample import Sample

FOLDER = "samples"


class KeptSamples:
    """Writes them for one run."""

    def __init__(self, run: Path, judge_version: str) -> None:
        self.folder = run / FOLDER
        self.folder.mkdir(exist_ok=True)
        self.judge_version = judge_version

    def write(self, step: int, samples: Sequence[Sample]) -> None:
        """One batch, in the order in which it is trained on; also one with nothing in it."""
        with whole(_part(self.folder, step)) as file:
            write_arrow(table_of(samples, step, self.judge_version), file)


def cut(run: Path, after: int) -> None:
    """Only the first `after` batches stay."""
    for part in (run / FOLDER).glob("step-*.arrow"):
        if _step(part) > after:
            part.unlink()


def steps(run: Path) -> list[int]:
    """The batches that a run kept."""
    return sorted(map(_step, (run / FOLDER).glob("step-*.arrow")))


def read(run: Path, step: int) -> pa.Table:
    """One batch, mapped into memory. Raises UserError where it is not there, or damaged."""
    part = _part(run / FOLDER, step)
    try:
        return read_arrow(part)
    except (OSError, pa.ArrowException) as error:
        raise UserError(
            f"{part}: cannot be read ({one_line(error)}); it was whole when it was written: bring "
            "it back, or leave this run out of replay.from_runs"
        ) from error


def read_all(run: Path) -> pa.Table:
    """All that a run kept, in order, mapped into memory."""
    return pa.concat_tables([SCHEMA.empty_table(), *(read(run, step) for step in steps(run))])


def digest(run: Path) -> str:
    """16 hex digits, others where it keeps other batches."""
    found = hashlib.sha256()
    for step in steps(run):
        with _part(run / FOLDER, step).open("rb") as file:
            found.update(hashlib.file_digest(file, "sha256").digest())
    return found.hexdigest()[:16]


def _part(folder: Path, step: int) -> Path:
    return folder / f"step-{step:08}.arrow"


def _step(part: Path) -> int:
    return int(part.stem.removeprefix("step-"))
