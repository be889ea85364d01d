"""The sample log of a run: an Arrow file for each batch that it trained on.

A file is complete or absent, and is written before the batch is trained on. A resumed run removes
the files after its checkpoint. `pyarrow.dataset.dataset(FOLDER, format="arrow")` reads all of them.

The same Arrow rows hold the replay buffer in memory. A row holds all of a sample except its problem
and prompt; of these it holds the name and digests. The reader brings the problem, and the digests
show whether it is the same one.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyarrow import feather

from envs.problem import Judgement, Verdict
from envs.reward import RewardConfig
from experiments.errors import UserError, one_line
from experiments.run_dir.atomic_files import atomic_write
from experiments.sample import Origin, PromptedProblem, Sample, Turn, compute_reward

FOLDER = "samples"

SCHEMA = pa.schema(
    {
        "step": pa.int32(),  # the batch in which it was trained on
        "problem": pa.string(),
        "problem_hash": pa.string(),
        "prompt": pa.string(),  # digest of the prompt's tokens
        "tokens": pa.large_list(pa.int32()),
        "logps": pa.large_list(pa.float32()),  # null: unknown
        "reward": pa.float64(),
        "truncated": pa.bool_(),
        "verdict": pa.string(),
        "passed": pa.int32(),
        "total": pa.int32(),
        "run_tests": pa.int32(),
        "program": pa.large_string(),
        "cpu_s": pa.float64(),
        "judge": pa.string(),  # the judge's version
        "source": pa.string(),
        "run": pa.string(),
        "written": pa.int32(),  # the batch it was generated for
        "version": pa.int32(),  # optimiser steps of the generating weights
        # of a conversation: numbers of tokens of its answers and observations, in turn; null: it is
        # one answer
        "turns": pa.large_list(pa.int32()),
    }
)


def write(run: Path, step: int, samples: Sequence[Sample], judge_version: str) -> None:
    """Write one batch in the order in which it is trained on; it may be empty."""
    (run / FOLDER).mkdir(exist_ok=True)
    with atomic_write(_file(run / FOLDER, step)) as file:
        table = table_of(samples, step, judge_version)
        feather.write_feather(table, file, compression="uncompressed")


def truncate(run: Path, after: int) -> None:
    """Remove the batches after number `after`."""
    for file in (run / FOLDER).glob("step-*.arrow"):
        if _step_of(file) > after:
            file.unlink()


def steps(run: Path) -> list[int]:
    """Return the numbers of the logged batches, ascending."""
    return sorted(map(_step_of, (run / FOLDER).glob("step-*.arrow")))


def read(run: Path, step: int) -> pa.Table:
    """Map one batch into memory. Raises UserError if it is missing or damaged."""
    path = _file(run / FOLDER, step)
    try:
        return feather.read_table(path, memory_map=True)
    except (OSError, pa.ArrowException) as error:
        raise UserError(
            f"{path}: cannot be read ({one_line(error)}); it was complete when it was written: "
            "restore it, or remove this run from replay.from_runs"
        ) from error


def read_all(run: Path) -> pa.Table:
    """Map all batches into memory, in order."""
    tables = [SCHEMA.empty_table(), *(read(run, step) for step in steps(run))]
    return pa.concat_tables(tables)


def digest(run: Path) -> str:
    """Return 16 hex digits over the content of all logged batches."""
    sha = hashlib.sha256()
    for step in steps(run):
        with _file(run / FOLDER, step).open("rb") as file:
            sha.update(hashlib.file_digest(file, "sha256").digest())
    return sha.hexdigest()[:16]


def _file(folder: Path, step: int) -> Path:
    return folder / f"step-{step:08}.arrow"


def _step_of(file: Path) -> int:
    return int(file.stem.removeprefix("step-"))


def table_of(samples: Sequence[Sample], step: int, judge: str = "") -> pa.Table:
    """Return one row per sample. `judge`: its version, if the judgements do not carry it."""
    return pa.Table.from_pylist([_row(s, step, judge) for s in samples], schema=SCHEMA)


def _row(sample: Sample, step: int, judge: str) -> dict[str, Any]:
    judgement, origin = sample.judgement, sample.origin
    lengths = [length for turn in sample.turns for length in (turn.answer, turn.observation)]
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
        "turns": lengths[:-1] or None,  # nothing is observed after the last answer
    }


def judgement_of(row: Mapping[str, Any]) -> Judgement:
    """Return a row's judgement, without its details."""
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
    """Return the rows as samples, one prompt each, with rewards by `reward`.

    Raises UserError if a reward needs tests that were not run, or if a row's log-probs or turns are
    not of as many tokens as its response.
    """
    rows = table.to_pylist()
    return [_sample(row, prompt, reward) for row, prompt in zip(rows, prompts, strict=True)]


def _sample(row: Mapping[str, Any], prompt: PromptedProblem, reward: RewardConfig) -> Sample:
    judgement, logps, tokens = judgement_of(row), row["logps"], row["tokens"]
    lengths = row["turns"] or []
    turns = tuple(map(Turn, lengths[::2], [*lengths[1::2], 0])) if lengths else ()
    generated = len(tokens) - sum(lengths[1::2])
    try:
        if logps is not None and len(logps) != len(tokens):
            raise ValueError(f"it has {len(tokens)} tokens, but log-probs of {len(logps)}")
        if lengths and sum(lengths) != len(tokens):
            raise ValueError(f"it has {len(tokens)} tokens, but turns of {sum(lengths)}")
        value = compute_reward(judgement, reward, generated)
    except ValueError as error:
        where = f"{row['run'] or row['source']}, a response to {row['problem']}"
        raise UserError(f"replay: {where}: {error}") from error
    return Sample(
        prompt,
        tuple(tokens),
        None if logps is None else tuple(logps),
        judgement,
        value,
        row["truncated"],
        Origin(row["source"], row["run"], row["written"], row["version"]),
        turns=turns,
    )


def prompt_digest(prompt: PromptedProblem) -> str:
    """Return 16 hex digits over the prompt's tokens."""
    return hashlib.sha256(repr(prompt.tokens).encode()).hexdigest()[:16]
