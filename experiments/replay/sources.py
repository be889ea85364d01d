"""Judgements of programs that a run did not generate, cached on disk, and the costs it is charged.

Such programs come from the data set, from earlier runs or from files. Each is judged once for all
runs that share the cache.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections import Counter, OrderedDict, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np
import pyarrow as pa

from analysis.normal_form import normal_form
from envs.cache_folder import replace_file
from envs.environment import AsyncEnvironment, Environment, JudgeStats, Submission
from envs.judge.extract import extract_program
from envs.problem import Judgement, Problem, Verdict
from envs.reward import RewardConfig
from experiments.config.schema import RunConfig
from experiments.errors import UserError
from experiments.replay import sample_log
from experiments.replay.sample_log import prompt_digest, samples_of
from experiments.run_dir.ledger import Ledger
from experiments.sample import Origin, PromptedProblem, Sample, compute_reward
from experiments.seeds import stream

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase


class JudgementCache:
    """Judge programs that are not cached.

    Infrastructure errors and verdicts that wall time decided are not cached.
    """

    def __init__(self, folder: Path, judge: Environment, ledger: Ledger) -> None:
        self.folder, self.judge, self.ledger = folder / judge.version, judge, ledger

    def judgements_of(self, problem: Problem, responses: Mapping[str, str]) -> dict[str, Judgement]:
        """Return the judgement of each response; the keys (programs) name them on disk."""
        return self.submit(problem, responses)()

    def submit(
        self, problem: Problem, responses: Mapping[str, str]
    ) -> Callable[[], dict[str, Judgement]]:
        """Start judging if the judge works in other processes; return a function that waits."""
        file = self.folder / f"{problem.hash}.json"
        cached = dict(_read(file))
        missing = [program for program in responses if _program_key(program) not in cached]
        submissions = [Submission(problem, responses[program]) for program in missing]
        pending = _submit(self.judge, submissions) if missing else None

        def wait() -> dict[str, Judgement]:
            if pending is not None:
                with self.ledger.phase("judge"):
                    fresh = pending()
                cached.update(zip(map(_program_key, missing), fresh, strict=True))
                _write(file, dict(_read(file)) | cached)
            judgements = {program: cached[_program_key(program)] for program in responses}
            return {
                program: replace(judgement, program=program if judgement.program else "")
                for program, judgement in judgements.items()
            }

        return wait


def _submit(judge: Environment, submissions: Sequence[Submission]) -> Callable[[], list[Judgement]]:
    if isinstance(judge, AsyncEnvironment):
        return judge.submit(submissions)
    return lambda: judge.judge(submissions)


def _write(file: Path, judgements: Mapping[str, Judgement]) -> None:
    stored = {
        key: asdict(judgement) | {"program": bool(judgement.program)}
        for key, judgement in judgements.items()
        if judgement.verdict is not Verdict.INFRA_ERROR and not judgement.by_wall_time
    }
    file.parent.mkdir(parents=True, exist_ok=True)
    replace_file(file, json.dumps(stored))


def _read(file: Path) -> Iterator[tuple[str, Judgement]]:
    """Yield (key, judgement); nothing if the file is missing or broken."""
    with suppress(FileNotFoundError, json.JSONDecodeError):
        for key, fields in json.loads(file.read_text()).items():
            yield key, Judgement(**fields | {"verdict": Verdict(fields["verdict"])})


def _program_key(program: str) -> str:
    return hashlib.sha256(program.encode("utf-8", "surrogatepass")).hexdigest()[:24]


class JudgingCosts:
    """Charge a run for judging the replayed programs that it trains on.

    An earlier run or the cache on disk may have paid already. Each program is charged again, once,
    so that equal runs cost the same. Its generation is charged to nobody.
    """

    def __init__(self, ledger: Ledger) -> None:
        self.ledger, self.stats = ledger, JudgeStats()
        self._charged: dict[str, None] = {}  # keys in order of their first use

    def charge(self, samples: Iterable[Sample]) -> None:
        """Charge each new program once. A response without a program costs nothing."""
        for sample in samples:
            judgement = sample.judgement
            key = _sample_key(sample)
            if not judgement.program or key in self._charged:
                continue
            self._charged[key] = None
            self.ledger.counts.replayed_programs += 1
            self.stats.programs_judged += 1
            self.stats.tests_run += judgement.run
            self.stats.cpu_s += judgement.cpu_s

    def state_dict(self) -> dict[str, Any]:
        """Return the costs, and the programs they are for."""
        return {"stats": asdict(self.stats), "known": list(self._charged)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore what `state_dict` returned."""
        self.stats, self._charged = JudgeStats(**state["stats"]), dict.fromkeys(state["known"])


def _sample_key(sample: Sample) -> str:
    text = repr((sample.prompt.problem.name, sample.judgement.program))
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:16]


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
        reasons = [mismatch_reason(row, prompt, self.judge_version) for row in rows]
        return None if None in reasons else reasons[0]

    def samples_for(self, prompt: PromptedProblem) -> list[Sample]:
        """Return the samples of one problem, in the order in which they were generated."""
        rows = self._table.take(self._rows.get(prompt.problem.name, np.empty(0, np.int64)))
        reasons = [mismatch_reason(row, prompt, self.judge_version) for row in rows.to_pylist()]
        self.left_out += Counter(reason for reason in reasons if reason)
        usable = rows.filter(pa.array([reason is None for reason in reasons], pa.bool_()))
        samples = samples_of(usable, [prompt] * len(usable), self.reward)
        return [with_run_origin(sample) for sample in samples]


def with_run_origin(sample: Sample) -> Sample:
    """Return the sample with another run's policy as its origin, if a policy generated it."""
    if sample.origin.source != "policy":
        return sample
    return replace(sample, origin=replace(sample.origin, source="run"))


def mismatch_reason(
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
    rows = np.flatnonzero(own & (steps == generated_for))
    if not len(rows):
        return {}
    names = np.array(table["problem"].to_pylist())[rows]
    order = np.argsort(names, kind="stable")
    problems, starts = np.unique(names[order], return_index=True)
    return dict(zip(problems.tolist(), np.split(rows[order], starts[1:]), strict=True))


MAX_PROBLEMS = 1024  # problems whose programs stay in memory; others are read from disk again
DATASET = Origin("dataset")


@dataclass(frozen=True, slots=True)
class _Program:
    """A program as a response, and its judgement."""

    tokens: tuple[int, ...]
    judgement: Judgement


def encode_response(text: str, tokenizer: PreTrainedTokenizerBase) -> tuple[int, ...]:
    """Return the tokens of a response, with EOS."""
    return (*tokenizer(text, add_special_tokens=False)["input_ids"], tokenizer.eos_token_id)


class OfflinePrograms:
    """Draw judged samples from the problems' own correct and incorrect programs."""

    def __init__(
        self,
        folder: Path,
        tokenizer: PreTrainedTokenizerBase,
        judge: Environment,
        reward: RewardConfig,
        max_tokens: int,
        per_problem: int,
        format_response: Callable[[str], str],
        ledger: Ledger,
    ) -> None:
        self.judgement_cache, self.tokenizer = JudgementCache(folder, judge, ledger), tokenizer
        self.reward, self.max_tokens, self.per_problem = reward, max_tokens, per_problem
        self.format_response, self.ledger = format_response, ledger
        self.counts: Counter[str] = (
            Counter()
        )  # programs used, and others by the reason they are not
        self.judging_stats = JudgeStats()  # judging costs, whichever run paid
        self._pool: OrderedDict[str, list[_Program]] = OrderedDict()
        self._pending: dict[str, Callable[[], list[_Program]]] = {}  # judging has started
        self._counted: set[str] = set()
        self._uncharged: dict[str, tuple[Counter[str], list[Judgement]]] = {}

    def state_dict(self) -> dict[str, Any]:
        """Return what this run was charged, and the problems; judgements are on disk."""
        problems = sorted(self._counted)
        return {
            "counts": dict(self.counts),
            "charged": asdict(self.judging_stats),
            "problems": problems,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore what `state_dict` returned."""
        self.counts, self._counted = Counter(state["counts"]), set(state["problems"])
        self.judging_stats = JudgeStats(**state["charged"])

    def prefetch(self, prompt: PromptedProblem) -> None:
        """Start judging a prompt's programs, if the judge works in other processes."""
        name = prompt.problem.name
        if name not in self._pool and name not in self._pending:
            self._pending[name] = self._submit(prompt.problem)

    def draw(self, prompt: PromptedProblem, count: int, *seed: object) -> list[Sample]:
        """Draw `count` samples, half accepted and half rejected where both exist.

        A small pool repeats samples. The list is empty if no program of the problem fits. `charge`
        charges their costs.
        """
        programs = self._programs_of(prompt.problem)
        accepted = [p for p in programs if p.judgement.verdict is Verdict.ACCEPTED]
        rejected = [p for p in programs if p.judgement.verdict is not Verdict.ACCEPTED]
        pools = [pool for pool in (accepted, rejected) if pool]
        if not pools:
            return []
        rng = stream("offline", prompt.problem.name, *seed)
        offset = rng.randrange(len(pools))
        drawn = [rng.choice(pools[(offset + i) % len(pools)]) for i in range(count)]
        return [
            Sample(prompt, p.tokens, None, p.judgement, self._reward(p), False, DATASET)
            for p in drawn
        ]

    def charge(self, prompt: PromptedProblem) -> None:
        """Charge a prompt's programs once, when samples of them are used.

        Programs that another run judged are charged too, so that equal runs cost the same.
        """
        if (uncharged := self._uncharged.pop(prompt.problem.name, None)) is None:
            return
        counts, judgements = uncharged
        self._counted.add(prompt.problem.name)
        failed = sum(judgement.verdict is Verdict.INFRA_ERROR for judgement in judgements)
        self.counts += counts + Counter(used=len(judgements) - failed)
        self.ledger.counts.offline_programs += len(judgements)
        self.judging_stats.infra_errors += failed
        self.judging_stats.programs_judged += len(judgements)
        self.judging_stats.tests_run += sum(judgement.run for judgement in judgements)
        self.judging_stats.cpu_s += sum(judgement.cpu_s for judgement in judgements)

    def _reward(self, program: _Program) -> float | None:
        return compute_reward(program.judgement, self.reward, len(program.tokens))

    def _programs_of(self, problem: Problem) -> list[_Program]:
        if problem.name not in self._pool:
            wait = self._pending.pop(problem.name, None) or self._submit(problem)
            self._pool[problem.name] = wait()
            if len(self._pool) > MAX_PROBLEMS:
                self._pool.popitem(last=False)
        return self._pool[problem.name]

    def _submit(self, problem: Problem) -> Callable[[], list[_Program]]:
        """Start judging a problem's programs; return a function that waits for them."""
        counts: Counter[str] = Counter()
        chosen: dict[str, tuple[int, ...]] = {}
        for kind in (problem.solutions, problem.incorrect_solutions):
            chosen |= self._choose(problem, kind, counts)
        pending = self.judgement_cache.submit(problem, {p: self.format_response(p) for p in chosen})

        def wait() -> list[_Program]:
            judgements = pending()
            if problem.name not in self._counted:
                self._uncharged.setdefault(problem.name, (counts, list(judgements.values())))
            return [
                _Program(tokens, judgements[program])
                for program, tokens in chosen.items()
                if judgements[program].verdict is not Verdict.INFRA_ERROR
            ]

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


KINDS = ("program", "response", "tokens")  # a line has exactly one of them


class ProgramFile:
    """One file. Lines are checked at the start and read again when they are needed."""

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
                    self._offsets[self._parse(line, number)["problem"]].append(offset)
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
        own_prompt = list(prompt.tokens)
        usable: list[tuple[str, tuple[int, ...], tuple[float, ...] | None]] = []
        for row in self._rows(prompt.problem.name):
            tokens, logps = self._tokens(row), row.get("logprobs")
            if len(tokens) > self.max_tokens:
                self.left_out["over task.max_response_tokens"] += 1
            elif logps is not None and len(logps) != len(tokens):
                self.left_out[f"log-probs for other tokens than this model's ({len(tokens)})"] += 1
            elif logps is not None and row.get("prompt", own_prompt) != own_prompt:
                self.left_out["log-probs after another prompt than this run's"] += 1
            else:
                logps = None if logps is None else tuple(map(float, logps))
                usable.append((self._text(row, tokens), tokens, logps))
        responses = {_cache_key(text): text for text, _, _ in usable}
        judgements = self.judgement_cache.judgements_of(prompt.problem, responses)
        samples = []
        for text, tokens, logps in usable:
            judgement = judgements[_cache_key(text)]
            if judgement.verdict is Verdict.INFRA_ERROR:
                self.left_out["the judge failed"] += 1
                continue
            program = (extract_program(text) or text) if judgement.program else ""
            judgement = replace(judgement, program=program)
            samples.append(
                Sample(
                    prompt,
                    tokens,
                    logps,
                    judgement,
                    reward=compute_reward(judgement, self.reward, len(tokens)),
                    truncated=False,
                    origin=Origin("file", self.path.name),
                )
            )
        return samples

    def _rows(self, problem: str) -> list[dict[str, Any]]:
        if problem not in self._offsets:
            return []
        with self.path.open("rb") as file:
            rows = []
            for offset in self._offsets[problem]:
                file.seek(offset)
                rows.append(json.loads(file.readline()))
        return rows

    def _parse(self, line: bytes, number: int) -> dict[str, Any]:
        where = f"{self}: line {number}"
        try:
            row = json.loads(line)
        except ValueError as error:
            raise UserError(f"{where} is not JSON: {error}") from error
        kinds = [kind for kind in KINDS if isinstance(row, dict) and kind in row]
        if len(kinds) != 1 or not isinstance(row.get("problem"), str):
            raise UserError(
                f'{where}: write {{"problem": NAME, "program": TEXT}}, or "response" or "tokens" '
                "for the program; see docs/reference/replay.md"
            )
        fault = _fault(kinds[0], row[kinds[0]], row.get("logprobs"), len(self.tokenizer))
        if not fault and "prompt" in row and not _are_ids(row["prompt"]):
            fault = '"prompt" must be a list of whole numbers'
        if fault:
            raise UserError(f"{where}: {fault}")
        if row.get("logprobs") is None and self.needs_logps:
            raise UserError(
                f"{where} has no logprobs, which this algorithm needs for its importance ratio; "
                "add them, set train.missing_logprobs=reference or =recomputed if the algorithm "
                "has a ratio, or choose an algorithm that learns from any source (`python -m "
                "algorithms` lists them)"
            )
        return row

    def _tokens(self, row: dict[str, Any]) -> tuple[int, ...]:
        if "tokens" in row:
            return tuple(row["tokens"])
        return encode_response(self._text(row, ()), self.tokenizer)

    def _text(self, row: dict[str, Any], tokens: tuple[int, ...]) -> str:
        if "tokens" in row:
            return str(self.tokenizer.decode(list(tokens), skip_special_tokens=True))
        return row["response"] if "response" in row else self.format_response(row["program"])


def _fault(kind: str, value: object, logps: object, vocabulary: int) -> str | None:
    """Return what is wrong with a line's values; None if nothing is."""
    if kind == "tokens":
        if not isinstance(value, list) or not _are_ids(value):
            return '"tokens" must be a list of whole numbers'
        if outside := [token for token in value if not 0 <= token < vocabulary]:
            return f"token {outside[0]} is not one of the tokenizer's {vocabulary:,} tokens"
    elif not isinstance(value, str):
        return f'"{kind}" must be a text'
    elif any("\ud800" <= letter <= "\udfff" for letter in value):
        return f'"{kind}" contains half a character (a lone surrogate)'
    if logps is None:
        return None
    if not isinstance(logps, list) or not all(type(logp) in (int, float) for logp in logps):
        return '"logprobs" must be a list of numbers, one for each token'
    if invalid := [logp for logp in logps if not -math.inf < logp <= 0]:  # NaN too
        return f"log-prob {invalid[0]} is not the logarithm of a probability above 0"
    return None


def _are_ids(value: object) -> bool:
    return isinstance(value, list) and all(type(token) is int for token in value)


def _cache_key(text: str) -> str:
    """Return a key that no program of the data set has: those are cached by their text alone."""
    return f"response\n{text}"


class FrozenBatches:
    """A `BatchSource` without an engine. Raises UserError if the logged batches do not fit."""

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
        """`accepts_missing_logprobs`: whether the algorithm learns without behaviour log-probs."""
        self.config, self.judge_version, self.costs = config, judge_version, costs
        self.accepts_missing_logprobs = accepts_missing_logprobs
        self.run = Path(config.replay.from_runs[0])
        self.digest = sample_log.digest(self.run)
        numbers = sample_log.steps(self.run)
        if missing := set(range(1, len(numbers) + 1)) - set(numbers):
            self._refuse(f"batch {min(missing)} is missing, but later ones exist")
        if config.steps > len(numbers):
            self._refuse(f"it recorded {len(numbers)} batches; use steps={len(numbers)} or fewer")
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
        names = table["problem"].to_pylist()
        prompts = [self._prompts[name] for name in names]
        for row, prompt in zip(table.to_pylist(), prompts, strict=True):
            if reason := mismatch_reason(row, prompt, self.judge_version):
                self._refuse(f"batch {step}, {row['problem']}: {reason}")
            if row["logps"] is None and not self.accepts_missing_logprobs:
                self._refuse(
                    f"batch {step} has responses without rollout log-probs, which "
                    f"algo={self.config.algo.name} needs"
                )
        samples = samples_of(table, prompts, self.config.task.reward)
        samples = [with_run_origin(sample) for sample in samples]
        self.costs.charge(samples)
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
