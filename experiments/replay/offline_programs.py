"""Offline programs: the data set's own correct and incorrect solutions as samples.

They are formatted as responses and judged like rollouts, but have no behaviour log-probs. Their
judgements are cached on disk and shared by all runs.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from analysis.normal_form import normal_form
from envs.environment import Environment, JudgeStats
from envs.problem import Judgement, Problem, Verdict
from envs.reward import RewardConfig
from experiments.replay.judgement_cache import JudgementCache
from experiments.run_dir.budget import Ledger
from experiments.sample import Origin, PromptedProblem, Sample, compute_reward
from experiments.seeds import stream

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

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
