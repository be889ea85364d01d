"""Programs that a run did not generate: of the data set, and of files from other models.

The data set's programs (`train.offline_share`) stand beside rollouts; those of files enter the
replay buffer. Each is judged once for all runs that share the cache on disk, and charged to each
run that uses it.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter, OrderedDict, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Annotated, Any

from annotated_types import Gt, Le
from pydantic import BaseModel, ConfigDict, NonNegativeInt, ValidationError
from transformers import PreTrainedTokenizerBase

from analysis.programs import normal_form
from envs.caching import replace_file
from envs.judge.extract import extract_program
from envs.problem import (
    AsyncEnvironment,
    Environment,
    Judgement,
    JudgeStats,
    Problem,
    Submission,
    Verdict,
)
from envs.reward import RewardConfig
from experiments.errors import UserError
from experiments.run_dir.ledger import Ledger
from experiments.sample import Origin, PromptedProblem, Sample, compute_reward, stream

MAX_PROBLEMS = 1024  # problems whose programs stay in memory; others are read from disk again


class JudgementCache:
    """Judge programs that are not cached.

    Infrastructure errors and verdicts that wall time decided are not cached.
    """

    def __init__(self, folder: Path, judge: Environment, ledger: Ledger) -> None:
        self.folder, self.judge, self.ledger = folder / judge.version, judge, ledger

    def submit(
        self, problem: Problem, responses: Mapping[str, str]
    ) -> Callable[[], dict[str, Judgement]]:
        """Start judging if the judge works in other processes.

        `responses`: by program, which names each on disk. Returns a function that waits for the
        judgement of each program.
        """
        file = self.folder / f"{problem.hash}.json"
        cached = dict(_read(file))
        missing = [program for program in responses if _key(program) not in cached]
        submissions = [Submission(problem, responses[program]) for program in missing]
        pending: Callable[[], list[Judgement]] = lambda: self.judge.judge(submissions)  # noqa: E731
        if missing and isinstance(self.judge, AsyncEnvironment):
            pending = self.judge.submit(submissions)

        def wait() -> dict[str, Judgement]:
            if missing:
                with self.ledger.phase("judge"):
                    fresh = pending()
                cached.update(zip(map(_key, missing), fresh, strict=True))
                stored = {
                    key: asdict(each) | {"program": bool(each.program)}
                    for key, each in (dict(_read(file)) | cached).items()
                    if each.verdict is not Verdict.INFRA_ERROR and not each.by_wall_time
                }
                file.parent.mkdir(parents=True, exist_ok=True)
                replace_file(file, json.dumps(stored))
            judgements = {program: cached[_key(program)] for program in responses}
            return {
                program: replace(judgement, program=program if judgement.program else "")
                for program, judgement in judgements.items()
            }

        return wait


def _read(file: Path) -> Iterator[tuple[str, Judgement]]:
    """Yield (key, judgement); nothing if the file is missing or broken."""
    with suppress(FileNotFoundError, json.JSONDecodeError):
        for key, fields in json.loads(file.read_text()).items():
            yield key, Judgement(**fields | {"verdict": Verdict(fields["verdict"])})


def _key(text: str, length: int = 24) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:length]


class JudgingCosts:
    """Charge a run for judging programs that it did not generate.

    Another run or the cache on disk may have paid already. Each program is charged again, once, so
    that equal runs cost the same. Its generation is charged to nobody.
    """

    def __init__(self, ledger: Ledger, count: str) -> None:
        """`count`: the ledger's count of such programs."""
        self.ledger, self.count, self.stats = ledger, count, JudgeStats()
        self._charged: dict[str, None] = {}  # in order of their first use

    def charge(self, key: str, judgements: Sequence[Judgement]) -> bool:
        """Charge the judgements behind a key once; return whether they are new."""
        if key in self._charged:
            return False
        self._charged[key] = None
        counts, stats = self.ledger.counts, self.stats
        setattr(counts, self.count, getattr(counts, self.count) + len(judgements))
        stats.infra_errors += sum(one.verdict is Verdict.INFRA_ERROR for one in judgements)
        stats.programs_judged += len(judgements)
        stats.tests_run += sum(one.run for one in judgements)
        stats.cpu_s += sum(one.cpu_s for one in judgements)
        return True

    def charge_samples(self, samples: Iterable[Sample]) -> None:
        """Charge each new program of these samples; a response without one costs nothing."""
        for sample in samples:
            if program := sample.judgement.program:
                key = _key(repr((sample.prompt.problem.name, program)), 16)
                self.charge(key, [sample.judgement])

    def state_dict(self) -> dict[str, Any]:
        """Return the costs, and the keys they are for."""
        return {"stats": asdict(self.stats), "charged": list(self._charged)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore what `state_dict` returned."""
        self.stats, self._charged = JudgeStats(**state["stats"]), dict.fromkeys(state["charged"])


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


@dataclass
class ProgramFile:
    """JSON lines of programs from another model, a source of the replay buffer.

    docs/reference/replay.md gives the format. Lines are checked at the start and read again when
    their problem's prompt first comes, and are then judged once for all runs.
    """

    path: Path
    judgement_cache: JudgementCache
    tokenizer: PreTrainedTokenizerBase
    reward: RewardConfig
    max_tokens: int
    format_response: Callable[[str], str]
    needs_logps: bool  # whether the algorithm needs behaviour log-probs

    def __post_init__(self) -> None:
        """Raises UserError, which names the line, if one is malformed."""
        self.left_out: Counter[str] = Counter()
        self._offsets: dict[str, list[int]] = defaultdict(list)  # problem → offsets of its lines
        sha, offset = hashlib.sha256(), 0
        with self.path.open("rb") as file:
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
        rows: list[Line] = []
        usable: list[tuple[str, tuple[int, ...], tuple[float, ...] | None]] = []
        with self.path.open("rb") as file:
            for offset in self._offsets.get(prompt.problem.name, ()):
                file.seek(offset)
                rows.append(Line.model_validate_json(file.readline()))
        for row in rows:
            if row.tokens is not None:
                tokens = tuple(row.tokens)
                text = str(self.tokenizer.decode(row.tokens, skip_special_tokens=True))
            else:
                given = row.response
                text = self.format_response(row.program or "") if given is None else given
                tokens = encode_response(text, self.tokenizer)
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


def encode_response(text: str, tokenizer: PreTrainedTokenizerBase) -> tuple[int, ...]:
    """Return the tokens of a response, with EOS."""
    return (*tokenizer(text, add_special_tokens=False)["input_ids"], tokenizer.eos_token_id)


@dataclass(frozen=True, slots=True)
class _Pool:
    """A problem's programs as responses, those left out by reason, and all judgements."""

    programs: list[tuple[tuple[int, ...], Judgement]]
    counts: Counter[str]
    judgements: list[Judgement]


@dataclass
class OfflinePrograms:
    """Draw samples from the problems' own correct and incorrect programs.

    They are formatted as responses and judged like rollouts, but have no behaviour log-probs.
    """

    judgement_cache: JudgementCache
    tokenizer: PreTrainedTokenizerBase
    reward: RewardConfig
    max_tokens: int
    per_problem: int
    format_response: Callable[[str], str]
    costs: JudgingCosts

    def __post_init__(self) -> None:
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

    def prefix(self, prompt: PromptedProblem, *seed: object) -> tuple[int, ...]:
        """Return an accepted program's tokens before a cut, any as likely; none without a program.

        At least its last token is left out.
        """
        pool = self._pool(prompt.problem).programs
        accepted = [tokens for tokens, one in pool if one.verdict is Verdict.ACCEPTED]
        if not accepted:
            return ()
        rng = stream("prefix", prompt.problem.name, *seed)
        tokens = rng.choice(accepted)
        return tokens[: rng.randrange(len(tokens))]

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
