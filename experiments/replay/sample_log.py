"""Every sample that a run trained on, in its folder: an Arrow file for each batch.

A file is whole or not there, and written before the batch is learnt from; a run that goes on cuts
those after its checkpoint. `pyarrow.dataset.dataset(FOLDER, format="arrow")` reads all of them.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa

from envs.problem import Judgement, Verdict
from envs.reward import RewardConfig
from experiments.errors import UserError, one_line
from experiments.run_dir.atomic_files import atomic_write, read_arrow, write_arrow
from experiments.sample import Origin, PromptedProblem, Sample, compute_reward

FOLDER = "samples"


class SampleLog:
    """Writes them for one run."""

    def __init__(self, run: Path, judge_version: str) -> None:
        self.folder = run / FOLDER
        self.folder.mkdir(exist_ok=True)
        self.judge_version = judge_version

    def write(self, step: int, samples: Sequence[Sample]) -> None:
        """One batch, in the order in which it is trained on; also one with nothing in it."""
        with atomic_write(_part(self.folder, step)) as file:
            write_arrow(table_of(samples, step, self.judge_version), file)


def truncate(run: Path, after: int) -> None:
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


# Samples as Arrow columns: what a store holds in memory and what a run folder keeps of them. A row
# holds all that a sample is but its problem and prompt, of which it holds the name and digests:
# whoever reads a row brings the problem, and sees by the digests whether it is the same one.


SCHEMA = pa.schema(
    {
        "step": pa.int32(),  # the batch that it was trained on in
        "problem": pa.string(),
        "problem_hash": pa.string(),
        "prompt": pa.string(),  # digest of the prompt's tokens
        "tokens": pa.large_list(pa.int32()),
        "logps": pa.large_list(pa.float32()),  # null: nobody told
        "reward": pa.float64(),
        "truncated": pa.bool_(),
        "verdict": pa.string(),
        "passed": pa.int32(),
        "total": pa.int32(),
        "run_tests": pa.int32(),
        "program": pa.large_string(),
        "cpu_s": pa.float64(),
        "judge": pa.string(),  # its version
        "source": pa.string(),
        "run": pa.string(),
        "written": pa.int32(),  # the batch that it was written for
        "version": pa.int32(),  # optimiser steps that the writer's weights had seen
    }
)


def table_of(samples: Sequence[Sample], step: int, judge: str = "") -> pa.Table:
    """A row for each sample of a batch; `judge`: its version, where judgements do not tell."""
    return pa.Table.from_pylist([_row(s, step, judge) for s in samples], schema=SCHEMA)


def _row(sample: Sample, step: int, judge: str) -> dict[str, object]:
    judgement, origin = sample.judgement, sample.origin
    # A lone surrogate, which no file holds, is in no program that could run.
    program = judgement.program.encode("utf-8", "replace").decode()
    return {
        "step": step,
        "problem": sample.prompt.problem.name,
        "problem_hash": sample.prompt.problem.hash,
        "prompt": prompt_digest(sample.prompt),
        "tokens": sample.tokens,
        "logps": sample.logps,
        "reward": sample.reward,
        "truncated": sample.truncated,
        "verdict": str(judgement.verdict),
        "passed": judgement.passed,
        "total": judgement.total,
        "run_tests": judgement.run,
        "program": program,
        "cpu_s": judgement.cpu_s,
        "judge": judgement.judge_version or judge,
        "source": origin.source,
        "run": origin.run,
        "written": origin.step,
        "version": origin.version,
    }


def judgement_of(row: dict[str, object]) -> Judgement:
    """What the judge said of a row, but for its details."""
    return Judgement(
        Verdict(row["verdict"]),
        row["passed"],
        row["total"],
        row["run_tests"],
        row["program"],
        row["cpu_s"],
        problem_hash=row["problem_hash"],
        judge_version=row["judge"],
    )


def samples_of(
    table: pa.Table, prompts: Sequence[PromptedProblem], reward: RewardConfig
) -> list[Sample]:
    """The rows as samples, one prompt each, paid by `reward`.

    Raises UserError where that needs tests which were not run.
    """
    return [
        _sample(row, prompt, reward) for row, prompt in zip(table.to_pylist(), prompts, strict=True)
    ]


def _sample(row: dict[str, object], prompt: PromptedProblem, reward: RewardConfig) -> Sample:
    judgement = judgement_of(row)
    try:
        paid = compute_reward(judgement, reward, len(row["tokens"]))
    except ValueError as error:
        where = f"{row['run'] or row['source']}, a response to {row['problem']}"
        raise UserError(f"replay: {where}: {error}") from error
    logps = row["logps"]
    return Sample(
        prompt,
        tuple(row["tokens"]),
        None if logps is None else tuple(logps),
        judgement,
        paid,
        row["truncated"],
        Origin(row["source"], row["run"], row["written"], row["version"]),
    )


def prompt_digest(prompt: PromptedProblem) -> str:
    """16 hex digits over the prompt's tokens."""
    return hashlib.sha256(repr(prompt.tokens).encode()).hexdigest()[:16]
