"""Samples that a run did not generate: of earlier runs, of files, and of the data set.

Those of earlier runs and of files enter the replay buffer, or with `replay.frozen` an earlier run's
batches take the place of rollouts. The data set's programs (`train.offline_share`) stand beside
rollouts. An earlier run's sample is used if everything that its reward depends on is unchanged: the
problem's tests, the prompt and the judge. Others are left out and counted.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter, OrderedDict, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from operator import attrgetter
from pathlib import Path
from typing import Annotated, Any, NoReturn

import numpy as np
import pyarrow as pa
from annotated_types import Gt, Le
from omegaconf import OmegaConf
from pydantic import BaseModel, ConfigDict, NonNegativeInt, ValidationError
from transformers import PreTrainedTokenizerBase

from analysis.programs import normal_form
from envs.judge.extract import extract_program
from envs.problem import Judgement, JudgeStats, Problem, Verdict
from envs.reward import RewardConfig
from experiments.config.schema import RunConfig
from experiments.errors import UserError
from experiments.replay import sample_log
from experiments.replay.judgements import JudgementCache, JudgingCosts
from experiments.replay.sample_log import prompt_digest, samples_of
from experiments.sample import Origin, PromptedProblem, Sample, compute_reward, stream

MAX_PROBLEMS = 1024  # problems whose programs stay in memory; others are read from disk again


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
        self.digest = sample_log.digest(run)
        self._table = sample_log.read_all(run)
        self._rows = _rows_by_problem(self._table)

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


def _rows_by_problem(table: pa.Table) -> dict[str, np.ndarray]:
    """Return each problem's row numbers: rows generated for the batch that trained on them.

    Replayed samples would count twice, and samples from the data set or from other runs are
    available at their origin.
    """
    own = np.array(table["source"].to_pylist(), object) == "policy"
    steps, generated_for = (np.array(table[key].to_pylist(), object) for key in ("step", "written"))
    rows = defaultdict[str, list[int]](list)
    names = table["problem"].to_pylist()
    for row in np.flatnonzero(own & (steps == generated_for)).tolist():
        rows[names[row]].append(row)
    return {name: np.array(rows[name], np.int64) for name in sorted(rows)}


class FrozenBatches:
    """The batches that an earlier run logged, in their order, instead of rollouts.

    Responses and rewards are the same bits for every algorithm, so two runs differ in the loss
    alone. Nothing is generated and nothing is judged.
    """

    offline = None
    replay = None

    def __init__(
        self,
        config: RunConfig,
        prompts: Sequence[PromptedProblem],
        judge_version: str,
        costs: JudgingCosts,
        accepts_missing_logprobs: bool,
    ) -> None:
        """`accepts_missing_logprobs`: whether the algorithm learns without behaviour log-probs.

        Raises UserError if the logged batches do not fit.
        """
        self.config, self.judge_version, self.costs = config, judge_version, costs
        self.accepts_missing_logprobs = accepts_missing_logprobs
        self.run = Path(config.replay.from_runs[0])
        self.digest = sample_log.digest(self.run)
        numbers = sample_log.steps(self.run)
        if missing := set(range(1, config.steps + 1)) - set(numbers):
            self._refuse(
                f"batch {min(missing)} is not recorded; use steps={min(missing) - 1} or fewer"
            )
        names = set(sample_log.read_all(self.run)["problem"].unique().to_pylist())
        self._prompts = {p.problem.name: p for p in prompts if p.problem.name in names}
        if absent := sorted(names - self._prompts.keys()):
            self._refuse(f"{absent[0]} is not in this run's train split; use the task of that run")
        self._step = 0

    def _refuse(self, reason: str) -> NoReturn:
        raise UserError(f"replay.from_runs=[{self.run}]: {reason}")

    def collect(self, step: int) -> list[Sample]:
        """Return the batch that the logged run trained on at `step`."""
        table, self._step = sample_log.read(self.run, step), step
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
        tables = [sample_log.read(self.run, step) for step in steps]
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


Logprob = Annotated[float, Gt(-float("inf")), Le(0)]


class Line(BaseModel):
    """One program of a file; exactly one of `program`, `response` and `tokens` is given."""

    model_config = ConfigDict(strict=True)

    problem: str
    program: str | None = None
    response: str | None = None
    tokens: list[NonNegativeInt] | None = None
    logprobs: list[Logprob] | None = None
    prompt: list[int] | None = None


class ProgramFile:
    """JSON lines of programs from another model, a source of the replay buffer.

    docs/reference/replay.md gives the format. Lines are checked at the start and read again when
    their problem's prompt first comes, and are then judged once for all runs.
    """

    def __init__(
        self,
        path: Path,
        *,
        judgement_cache: JudgementCache,
        tokenizer: PreTrainedTokenizerBase,
        reward: RewardConfig,
        max_tokens: int,
        format_response: Callable[[str], str],
        needs_logps: bool,
    ) -> None:
        """`needs_logps`: whether the algorithm needs behaviour log-probs.

        Raises UserError, which names the line, if one is malformed.
        """
        self.path, self.judgement_cache, self.tokenizer = path, judgement_cache, tokenizer
        self.reward, self.max_tokens, self.format_response = reward, max_tokens, format_response
        self.needs_logps = needs_logps
        self.left_out: Counter[str] = Counter()
        self._offsets: dict[str, list[int]] = defaultdict(list)  # problem → offsets of its lines
        sha, offset = hashlib.sha256(), 0
        with path.open("rb") as file:
            for number, line in enumerate(file, 1):
                if line.strip():
                    self._offsets[self._parse(line, number).problem].append(offset)
                offset += len(line)
                sha.update(line)
        self.digest = sha.hexdigest()[:16]

    def __str__(self) -> str:
        return f"replay.files=[{self.path}]"

    @property
    def problems(self) -> dict[str, int]:
        """The number of programs for each problem, by name."""
        return {name: len(offsets) for name, offsets in self._offsets.items()}

    def samples_for(self, prompt: PromptedProblem) -> list[Sample]:
        """Return the samples of one problem, in the order of their lines."""
        usable: list[tuple[str, tuple[int, ...], tuple[float, ...] | None]] = []
        for row in self._rows(prompt.problem.name):
            text, tokens = self._response(row)
            logps = None if row.logprobs is None else tuple(row.logprobs)
            if len(tokens) > self.max_tokens:
                self.left_out["over task.max_response_tokens"] += 1
            elif logps is not None and len(logps) != len(tokens):
                self.left_out[f"log-probs for other tokens than this model's ({len(tokens)})"] += 1
            elif logps is not None and row.prompt not in (None, list(prompt.tokens)):
                self.left_out["log-probs after another prompt than this run's"] += 1
            else:
                usable.append((text, tokens, logps))
        responses = {f"response\n{text}": text for text, _, _ in usable}  # no program of the data
        judgements = self.judgement_cache.submit(prompt.problem, responses)()
        samples = []
        for text, tokens, logps in usable:
            judgement = judgements[f"response\n{text}"]
            if judgement.verdict is Verdict.INFRA_ERROR:
                self.left_out["the judge failed"] += 1
                continue
            program = (extract_program(text) or text) if judgement.program else ""
            judgement = replace(judgement, program=program)
            value = compute_reward(judgement, self.reward, len(tokens))
            origin = Origin("file", self.path.name)
            samples.append(Sample(prompt, tokens, logps, judgement, value, False, origin))
        return samples

    def _rows(self, problem: str) -> list[Line]:
        rows = []
        with self.path.open("rb") as file:
            for offset in self._offsets.get(problem, ()):
                file.seek(offset)
                rows.append(Line.model_validate_json(file.readline()))
        return rows

    def _parse(self, line: bytes, number: int) -> Line:
        where = f"{self}: line {number}"
        try:
            row = Line.model_validate_json(line)
        except ValidationError as error:
            first = error.errors()[0]
            at = ".".join(map(str, first["loc"]))
            raise UserError(f"{where}: {at or 'JSON'}: {first['msg']}") from error
        if sum(each is not None for each in (row.program, row.response, row.tokens)) != 1:
            raise UserError(
                f'{where}: write {{"problem": NAME, "program": TEXT}}, or "response" or "tokens" '
                "for the program; see docs/reference/replay.md"
            )
        vocabulary = len(self.tokenizer)
        if outside := [token for token in row.tokens or () if token >= vocabulary]:
            raise UserError(
                f"{where}: token {outside[0]} is not one of the tokenizer's {vocabulary:,} tokens"
            )
        if row.logprobs is None and self.needs_logps:
            raise UserError(
                f"{where} has no logprobs, which this algorithm needs for its importance ratio; "
                "add them, or set train.missing_logprobs=reference or =recomputed"
            )
        return row

    def _response(self, row: Line) -> tuple[str, tuple[int, ...]]:
        """Return a line's text and tokens."""
        if row.tokens is not None:
            decoded = str(self.tokenizer.decode(row.tokens, skip_special_tokens=True))
            return decoded, tuple(row.tokens)
        given = row.response
        text = self.format_response(row.program or "") if given is None else given
        return text, encode_response(text, self.tokenizer)


def encode_response(text: str, tokenizer: PreTrainedTokenizerBase) -> tuple[int, ...]:
    """Return the tokens of a response, with EOS."""
    return (*tokenizer(text, add_special_tokens=False)["input_ids"], tokenizer.eos_token_id)


def check_source(source: EarlierRun | ProgramFile, prompts: Sequence[PromptedProblem]) -> None:
    """Count samples of problems outside this run's train split.

    Raises UserError if no sample is usable, judged by the first problem that both have.
    """
    problems = source.problems
    outside = problems.keys() - {prompt.problem.name for prompt in prompts}
    if outside:
        count = sum(problems[name] for name in outside)
        source.left_out["of problems that this run's train split has not"] += count
    shared = next((prompt for prompt in prompts if prompt.problem.name in problems), None)
    if shared is None:
        raise UserError(f"{source}: none of its problems is in this run's train split")
    if isinstance(source, EarlierRun) and (reason := source.rejection_reason(shared)):
        raise UserError(f"{source}: {shared.problem.name}: {reason}")


@dataclass(frozen=True, slots=True)
class _Pool:
    """A problem's programs as responses, those left out by reason, and all judgements."""

    programs: list[tuple[tuple[int, ...], Judgement]]
    counts: Counter[str]
    judgements: list[Judgement]


class OfflinePrograms:
    """Draw samples from the problems' own correct and incorrect programs.

    They are formatted as responses and judged like rollouts, but have no behaviour log-probs.
    """

    def __init__(
        self,
        judgement_cache: JudgementCache,
        tokenizer: PreTrainedTokenizerBase,
        reward: RewardConfig,
        max_tokens: int,
        per_problem: int,
        format_response: Callable[[str], str],
        costs: JudgingCosts,
    ) -> None:
        self.judgement_cache, self.tokenizer, self.costs = judgement_cache, tokenizer, costs
        self.reward, self.max_tokens, self.per_problem = reward, max_tokens, per_problem
        self.format_response = format_response
        self.counts: Counter[str] = Counter()  # programs used, and others by the reason
        self._pools: OrderedDict[str, _Pool] = OrderedDict()
        self._pending: dict[str, Callable[[], _Pool]] = {}  # judging has started

    def state_dict(self) -> dict[str, Any]:
        """Return what this run was charged; judgements are on disk."""
        return {"counts": dict(self.counts), "charges": self.costs.state_dict()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore what `state_dict` returned."""
        self.counts = Counter(state["counts"])
        self.costs.load_state_dict(state["charges"])

    def prefetch(self, prompt: PromptedProblem) -> None:
        """Start judging a prompt's programs, if the judge works in other processes."""
        name = prompt.problem.name
        if name not in self._pools and name not in self._pending:
            self._pending[name] = self._submit(prompt.problem)

    def draw(self, prompt: PromptedProblem, count: int, *seed: object) -> list[Sample]:
        """Draw `count` samples, half accepted and half rejected where both exist.

        A small pool repeats samples. The list is empty if no program of the problem fits. `charge`
        charges their costs.
        """
        pools: dict[bool, list[tuple[tuple[int, ...], Judgement]]] = {True: [], False: []}
        for tokens, judgement in self._pool(prompt.problem).programs:
            pools[judgement.verdict is Verdict.ACCEPTED].append((tokens, judgement))
        kinds = [pool for pool in pools.values() if pool]
        if not kinds:
            return []
        rng = stream("offline", prompt.problem.name, *seed)
        offset = rng.randrange(len(kinds))
        samples = []
        for i in range(count):
            tokens, judgement = rng.choice(kinds[(offset + i) % len(kinds)])
            value = compute_reward(judgement, self.reward, len(tokens))
            samples.append(Sample(prompt, tokens, None, judgement, value, False, Origin("dataset")))
        return samples

    def charge(self, prompt: PromptedProblem) -> None:
        """Charge a prompt's programs once, when samples of them are used."""
        pool = self._pool(prompt.problem)
        if self.costs.charge(prompt.problem.name, pool.judgements):
            self.counts += pool.counts + Counter(used=len(pool.programs))

    def _pool(self, problem: Problem) -> _Pool:
        if problem.name not in self._pools:
            wait = self._pending.pop(problem.name, None) or self._submit(problem)
            self._pools[problem.name] = wait()
            if len(self._pools) > MAX_PROBLEMS:
                self._pools.popitem(last=False)
        return self._pools[problem.name]

    def _submit(self, problem: Problem) -> Callable[[], _Pool]:
        """Start judging a problem's programs; return a function that waits for them."""
        counts: Counter[str] = Counter()
        chosen: dict[str, tuple[int, ...]] = {}
        for programs in (problem.solutions, problem.incorrect_solutions):
            chosen |= self._choose(problem, programs, counts)
        pending = self.judgement_cache.submit(problem, {p: self.format_response(p) for p in chosen})

        def wait() -> _Pool:
            judgements = pending()
            used = [
                (tokens, judgements[program])
                for program, tokens in chosen.items()
                if judgements[program].verdict is not Verdict.INFRA_ERROR
            ]
            return _Pool(used, counts, list(judgements.values()))

        return wait

    def _choose(
        self, problem: Problem, programs: Iterable[str], counts: Counter[str]
    ) -> dict[str, tuple[int, ...]]:
        """Return at most `per_problem` programs with distinct normal forms, with their tokens."""
        order = list(dict.fromkeys(programs))
        stream("offline programs", problem.name).shuffle(order)
        chosen: dict[str, tuple[int, ...]] = {}
        seen: set[str] = set()
        for program in order:
            form = normal_form(program) or program
            if form in seen:
                counts["the same but for its writing"] += 1
                continue
            seen.add(form)
            if len(chosen) == self.per_problem:
                counts["beyond train.offline_per_problem"] += 1
                continue
            tokens = encode_response(self.format_response(program), self.tokenizer)
            if len(tokens) > self.max_tokens:
                counts["over task.max_response_tokens"] += 1
            else:
                chosen[program] = tokens
        return chosen
