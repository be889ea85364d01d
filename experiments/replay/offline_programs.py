"""Offline samples: the data set's own correct and incorrect programs.

They are samples like any other: formatted as a response and judged once, as the online ones are.
Only their log-probs are missing, since nobody knows who wrote them. What the judge said is kept on
disk and shared by all runs.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from analysis.metrics.normal_form import normal_form
from envs.environment import Environment, JudgeStats
from envs.problem import Judgement, Problem, Verdict
from envs.reward import RewardConfig
from experiments.replay.judgement_cache import JudgementCache
from experiments.run_dir.budget import Ledger
from experiments.sample import Origin, PromptedProblem, Sample, compute_reward
from experiments.seeds import stream

REMEMBERED = 1024  # problems whose programs stay in memory; others are read from disk again
DATASET = Origin("dataset")


@dataclass(frozen=True, slots=True)
class _Program:
    """A program as a response, and what the judge said of it."""

    tokens: tuple[int, ...]
    judgement: Judgement


class OfflinePrograms:
    """Judged samples made of the problems' own correct and incorrect programs."""

    def __init__(
        self,
        folder: Path,
        tokenizer: object,
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
        self.counts: Counter[str] = Counter()  # of programs: used, and why others are not
        self.judging_stats = JudgeStats()  # what judging them has cost, in this run or another
        self._pool: OrderedDict[str, list[_Program]] = OrderedDict()
        self._asked: dict[str, Callable[[], list[_Program]]] = {}  # what the judge has begun with
        self._counted: set[str] = set()
        self._uncharged: dict[str, tuple[Counter[str], list[Judgement]]] = {}

    def state_dict(self) -> dict[str, Any]:
        """What this run was charged, and for which problems; judgements are on disk."""
        problems = sorted(self._counted)
        return {
            "counts": dict(self.counts),
            "charged": asdict(self.judging_stats),
            "problems": problems,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Back to what `state_dict` held."""
        self.counts, self._counted = Counter(state["counts"]), set(state["problems"])
        self.judging_stats = JudgeStats(**state["charged"])

    def prefetch(self, prompt: PromptedProblem) -> None:
        """The prompt comes soon: have its programs judged, where that goes on meanwhile."""
        name = prompt.problem.name
        if name not in self._pool and name not in self._asked:
            self._asked[name] = self._ask(prompt.problem)

    def draw(self, prompt: PromptedProblem, count: int, *seed: object) -> list[Sample]:
        """`count` samples, accepted and rejected ones in equal parts where both exist.

        A small pool repeats itself; the list is empty where no program of the problem fits. What
        they have cost is charged by `charge`.
        """
        programs = self._of(prompt.problem)
        accepted = [p for p in programs if p.judgement.verdict is Verdict.ACCEPTED]
        rejected = [p for p in programs if p.judgement.verdict is not Verdict.ACCEPTED]
        pools = [pool for pool in (accepted, rejected) if pool]
        if not pools:
            return []
        rng = stream("offline", prompt.problem.name, *seed)
        offset = rng.randrange(len(pools))
        drawn = [rng.choice(pools[(offset + i) % len(pools)]) for i in range(count)]
        return [
            Sample(prompt, p.tokens, None, p.judgement, self._pay(p), False, DATASET) for p in drawn
        ]

    def charge(self, prompt: PromptedProblem) -> None:
        """Samples to this prompt are used: count its programs, once.

        Also where another run has judged them, so that equal runs cost the same.
        """
        if (found := self._uncharged.pop(prompt.problem.name, None)) is None:
            return
        counts, judgements = found
        self._counted.add(prompt.problem.name)
        failed = sum(judgement.verdict is Verdict.INFRA_ERROR for judgement in judgements)
        self.counts += counts + Counter(used=len(judgements) - failed)
        self.ledger.counts.offline_programs += len(judgements)
        self.judging_stats.infra_errors += failed
        self.judging_stats.programs_judged += len(judgements)
        self.judging_stats.tests_run += sum(judgement.run for judgement in judgements)
        self.judging_stats.cpu_s += sum(judgement.cpu_s for judgement in judgements)

    def _pay(self, program: _Program) -> float | None:
        return compute_reward(program.judgement, self.reward, len(program.tokens))

    def _of(self, problem: Problem) -> list[_Program]:
        if problem.name not in self._pool:
            read = self._asked.pop(problem.name, None) or self._ask(problem)
            self._pool[problem.name] = read()
            if len(self._pool) > REMEMBERED:
                self._pool.popitem(last=False)
        return self._pool[problem.name]

    def _ask(self, problem: Problem) -> Callable[[], list[_Program]]:
        """Begin to read its programs → what waits for the judge, and gives them."""
        counts: Counter[str] = Counter()
        chosen: dict[str, tuple[int, ...]] = {}
        for kind in (problem.solutions, problem.incorrect_solutions):
            chosen |= self._choose(problem, kind, counts)
        answer = self.judgement_cache.submit(problem, {p: self.format_response(p) for p in chosen})

        def read() -> list[_Program]:
            judgements = answer()
            if problem.name not in self._counted:
                self._uncharged.setdefault(problem.name, (counts, list(judgements.values())))
            return [
                _Program(tokens, judgements[program])
                for program, tokens in chosen.items()
                if judgements[program].verdict is not Verdict.INFRA_ERROR
            ]

        return read

    def _choose(
        self, problem: Problem, programs: Iterable[str], counts: Counter[str]
    ) -> dict[str, tuple[int, ...]]:
        """At most `per_problem` programs that differ in more than writing, with their tokens."""
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
            tokens = self._tokens(program)
            if len(tokens) > self.max_tokens:
                counts["over task.max_response_tokens"] += 1
            else:
                chosen[program] = tokens
        return chosen

    def _tokens(self, program: str) -> tuple[int, ...]:
        text = self.format_response(program)
        ids = self.tokenizer(text, add_special_tokens=False)["input_ids"]
        return (*ids, self.tokenizer.eos_token_id)
