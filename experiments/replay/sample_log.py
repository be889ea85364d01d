"""The sample log of a run: an Arrow file for each batch that it trained on.

A file is complete or absent, and is written before the batch is trained on. A resumed run removes
the files after its checkpoint. `pyarrow.dataset.dataset(FOLDER, format="arrow")` reads all of them.

The same Arrow rows hold the replay buffer in memory. A row holds all of a sample except its problem
and prompt; of these it holds the name and digests. The reader brings the problem, and the digests
show whether it is the same one.

Later runs read the log: samples of earlier runs enter the replay buffer, or with `replay.frozen` an
earlier run's batches take the place of rollouts. A sample is used if everything that its reward
depends on is unchanged: the problem's tests, the prompt and the judge. Others are left out and
counted.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from operator import attrgetter
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import pyarrow as pa
from omegaconf import OmegaConf
from pyarrow import feather

from envs.problem import Judgement, JudgeStats, Verdict
from envs.reward import RewardConfig
from experiments.config.schema import RunConfig
from experiments.errors import UserError, one_line
from experiments.replay.programs import JudgingCosts
from experiments.run_dir.atomic_files import atomic_write
from experiments.sample import (
    Origin,
    PromptedProblem,
    Sample,
    Turn,
    compute_reward,
    response_length,
)

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
    write_table(run, FOLDER, step, table_of(samples, step, judge_version))


def write_table(run: Path, folder: str, step: int, table: pa.Table) -> None:
    """Write a table of one batch to a folder of the run folder."""
    (run / folder).mkdir(exist_ok=True)
    with atomic_write(_file(run, step, folder)) as file:
        feather.write_feather(table, file, compression="uncompressed")


def files(run: Path, folder: str = FOLDER) -> dict[int, Path]:
    """Return the file of each logged batch, in order."""
    found = sorted((run / folder).glob("step-*.arrow"))
    return {int(file.stem.removeprefix("step-")): file for file in found}


def truncate(run: Path, after: int, folder: str = FOLDER) -> None:
    """Remove the batches after number `after`."""
    for step, file in files(run, folder).items():
        if step > after:
            file.unlink()


def read(run: Path, step: int) -> pa.Table:
    """Map one batch into memory. Raises UserError if it is missing or damaged."""
    path = _file(run, step)
    try:
        return feather.read_table(path, memory_map=True)
    except (OSError, pa.ArrowException) as error:
        raise UserError(
            f"{path}: cannot be read ({one_line(error)}); it was complete when it was written: "
            "restore it, or remove this run from replay.from_runs"
        ) from error


def read_all(run: Path) -> pa.Table:
    """Map all batches into memory, in order."""
    return pa.concat_tables([SCHEMA.empty_table(), *(read(run, step) for step in files(run))])


def digest(run: Path) -> str:
    """Return 16 hex digits over the content of all logged batches."""
    sha = hashlib.sha256()
    for path in files(run).values():
        with path.open("rb") as file:
            sha.update(hashlib.file_digest(file, "sha256").digest())
    return sha.hexdigest()[:16]


def _file(run: Path, step: int, folder: str = FOLDER) -> Path:
    return run / folder / f"step-{step:08}.arrow"


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
    logps, tokens = row["logps"], row["tokens"]
    same = ("passed", "total", "program", "cpu_s", "problem_hash")
    fields = {"run": row["run_tests"], "judge_version": row["judge"]} | {k: row[k] for k in same}
    judgement = Judgement(Verdict(row["verdict"]), **fields)
    lengths = row["turns"] or []
    turns = tuple(map(Turn, lengths[::2], [*lengths[1::2], 0])) if lengths else ()
    try:
        if logps is not None and len(logps) != len(tokens):
            raise ValueError(f"it has {len(tokens)} tokens, but log-probs of {len(logps)}")
        if lengths and sum(lengths) != len(tokens):
            raise ValueError(f"it has {len(tokens)} tokens, but turns of {sum(lengths)}")
        value = compute_reward(judgement, reward, response_length(len(tokens), turns))
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


# Reading earlier runs


def check_same_settings(run: Path, config: RunConfig, observations_hash: str | None) -> None:
    """Raise UserError if an earlier run sampled with other settings than this one.

    Log-probs depend on the sampling temperature, a group's baseline on the whole group, and what an
    answer is worth on what follows it in a conversation.
    """
    where = f"replay.from_runs=[{run}]"
    try:
        theirs = OmegaConf.load(run / "config.yaml")
        observations = json.loads((run / "run.json").read_text())["observations_hash"]
    except OSError as error:
        raise UserError(f"{where}: not a whole run folder: {error}") from error
    keys = ["train.temperature", *["train.group_size"] * config.replay.frozen, "task.turns"]
    if observations_hash:
        keys += ["task.feedback", "task.max_observation_tokens"]
    pairs = {key: (OmegaConf.select(theirs, key), attrgetter(key)(config)) for key in keys}
    resets, branches = "train.reset_share", "algo.branches"  # some own only a part of a response
    theirs_reset = OmegaConf.select(theirs, resets, default=0.0)
    pairs[resets] = (theirs_reset, config.train.reset_share)
    pairs[branches] = (OmegaConf.select(theirs, branches), getattr(config.algo, "branches", None))
    if observations_hash:
        key = "observations_hash (task.feedback_prompt, or the model's chat template)"
        pairs[key] = (observations, observations_hash)
    for key, (value, own) in pairs.items():
        if value != own:
            raise UserError(f"{where}: its {key} is {value}, but {own} here; use the same value")


class EarlierRun:
    """Responses that one run's own policies generated; a source of the replay buffer."""

    def __init__(self, run: Path, judge_version: str, reward: RewardConfig) -> None:
        self.run, self.judge_version, self.reward = run, judge_version, reward
        self.left_out: Counter[str] = Counter()
        self.digest = digest(run)
        self._table = read_all(run)
        # By problem, the rows generated for the batch that trained on them. Replayed samples would
        # count twice, and those of the data set or of other runs are available at their origin.
        frame = self._table.select(["problem", "source", "step", "written"]).to_pandas()
        own = frame[(frame["source"] == "policy") & (frame["step"] == frame["written"])]
        self._rows = {name: rows.to_numpy() for name, rows in own.groupby("problem").groups.items()}

    def __str__(self) -> str:
        return f"replay.from_runs=[{self.run}]"

    @property
    def problems(self) -> dict[str, int]:
        """The number of responses to each problem, by name."""
        return {name: len(rows) for name, rows in self._rows.items()}

    def rejection_reason(self, prompt: PromptedProblem) -> str | None:
        """Return why none of the responses to a problem can be used; None if some can."""
        rows = self._table.take(self._rows[prompt.problem.name]).to_pylist()
        reasons = [_mismatch_reason(row, prompt, self.judge_version) for row in rows]
        return None if None in reasons else reasons[0]

    def samples_for(self, prompt: PromptedProblem) -> list[Sample]:
        """Return the samples of one problem, in the order in which they were generated."""
        rows = self._table.take(self._rows.get(prompt.problem.name, np.empty(0, np.int64)))
        reasons = [_mismatch_reason(row, prompt, self.judge_version) for row in rows.to_pylist()]
        self.left_out += Counter(reason for reason in reasons if reason)
        usable = rows.filter(pa.array([reason is None for reason in reasons], pa.bool_()))
        samples = samples_of(usable, [prompt] * len(usable), self.reward)
        return [_with_run_origin(sample) for sample in samples]


def _with_run_origin(sample: Sample) -> Sample:
    """Return the sample with another run's policy as its origin, if a policy generated it."""
    if sample.origin.source != "policy":
        return sample
    return replace(sample, origin=replace(sample.origin, source="run"))


def _mismatch_reason(
    row: Mapping[str, Any], prompt: PromptedProblem, judge_version: str
) -> str | None:
    """Return why a logged sample does not apply to this problem; None if it does."""
    if row["problem_hash"] != prompt.problem.hash:
        return "the problem has other tests"
    if row["prompt"] != prompt_digest(prompt):
        return "generated for another prompt, or with another tokenizer"
    if row["judge"] != judge_version:
        return "judged by another judge version"
    return None


@dataclass
class FrozenBatches:
    """The batches that an earlier run logged, in their order, instead of rollouts.

    Responses and rewards are the same bits for every algorithm, so two runs differ in the loss
    alone. Nothing is generated and nothing is judged.
    """

    config: RunConfig
    prompts: Sequence[PromptedProblem]
    judge_version: str
    costs: JudgingCosts
    accepts_missing_logprobs: bool  # whether the algorithm learns without behaviour log-probs

    offline = None
    replay = None

    def __post_init__(self) -> None:
        """Raises UserError if the logged batches do not fit."""
        self.run = Path(self.config.replay.from_runs[0])
        self.digest = digest(self.run)
        if missing := set(range(1, self.config.steps + 1)) - files(self.run).keys():
            self._refuse(
                f"batch {min(missing)} is not recorded; use steps={min(missing) - 1} or fewer"
            )
        names = set(read_all(self.run)["problem"].unique().to_pylist())
        self._prompts = {p.problem.name: p for p in self.prompts if p.problem.name in names}
        if absent := sorted(names - self._prompts.keys()):
            self._refuse(f"{absent[0]} is not in this run's train split; use the task of that run")
        self._step = 0

    def _refuse(self, reason: str) -> NoReturn:
        raise UserError(f"replay.from_runs=[{self.run}]: {reason}")

    def collect(self, step: int) -> list[Sample]:
        """Return the batch that the logged run trained on at `step`."""
        table, self._step = read(self.run, step), step
        rows = table.to_pylist()
        prompts = [self._prompts[row["problem"]] for row in rows]
        for row, prompt in zip(rows, prompts, strict=True):
            if reason := _mismatch_reason(row, prompt, self.judge_version):
                self._refuse(f"batch {step}, {row['problem']}: {reason}")
            if row["logps"] is None and not self.accepts_missing_logprobs:
                self._refuse(
                    f"batch {step} has responses without rollout log-probs, which "
                    f"algo={self.config.algo.name} needs"
                )
        samples = samples_of(table, prompts, self.config.task.reward)
        samples = [_with_run_origin(sample) for sample in samples]
        self.costs.charge_samples(samples)
        return samples

    def upcoming_prompts(self, batches: int) -> list[PromptedProblem]:
        """Return the prompts of the next batches."""
        steps = range(self._step + 1, min(self._step + batches, self.config.steps) + 1)
        tables = [read(self.run, step) for step in steps]
        names = [name for table in tables for name in table["problem"].to_pylist()]
        return [self._prompts[name] for name in dict.fromkeys(names)]

    @property
    def judging_stats(self) -> list[JudgeStats]:
        """The cost of judging the batches."""
        return [self.costs.stats]

    @property
    def description(self) -> dict[str, Any]:
        """The source of the batches, for run.json."""
        return {"frozen": {"run": str(self.run), "digest": self.digest}}

    def metrics(self) -> dict[str, float]:
        """Return no metrics: there is no replay buffer."""
        return {}

    def state_dict(self) -> dict[str, Any]:
        """Return the position and the charged costs."""
        return {"step": self._step, "digest": self.digest, "charges": self.costs.state_dict()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore what `state_dict` returned. Raises UserError if the logged run has changed."""
        if state["digest"] != self.digest:
            self._refuse("it has changed since the checkpoint; restore it")
        self._step = state["step"]
        self.costs.load_state_dict(state["charges"])
