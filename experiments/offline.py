"""Offline samples: the data set's own correct and incorrect programs.

They are samples like any other: formatted as a response and judged once by the judge that pays the
online ones. Only their log-probs are missing, since nobody knows who wrote them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from envs.judge import Judge, Submission
from envs.reward import RewardConfig
from experiments.samples import PromptedProblem, Sample, pay
from experiments.seeds import stream


class OfflinePool:
    """Judged samples made of the problems' own correct and incorrect programs."""

    def __init__(
        self,
        tokenizer: object,
        judge: Judge,
        reward: RewardConfig,
        max_tokens: int,
        format_response: Callable[[str], str],
    ) -> None:
        self.tokenizer, self.judge, self.reward = tokenizer, judge, reward
        self.max_tokens, self.format_response = max_tokens, format_response
        self._pool: dict[str, tuple[list[Sample], list[Sample]]] = {}

    def draw(self, prompt: PromptedProblem, count: int, *seed: object) -> list[Sample]:
        """`count` samples, accepted and rejected ones in equal parts where both exist.

        A small pool repeats itself; the list is empty where no program of the problem fits.
        """
        accepted, rejected = self._of(prompt)
        pools = [pool for pool in (accepted, rejected) if pool]
        if not pools:
            return []
        rng = stream("offline", prompt.problem.name, *seed)
        offset = rng.randrange(len(pools))
        return [rng.choice(pools[(offset + i) % len(pools)]) for i in range(count)]

    def _of(self, prompt: PromptedProblem) -> tuple[list[Sample], list[Sample]]:
        problem = prompt.problem
        if problem.name not in self._pool:
            samples = self._judged(prompt, [*problem.solutions, *problem.incorrect_solutions])
            self._pool[problem.name] = (
                [s for s in samples if s.accepted],
                [s for s in samples if not s.accepted],
            )
        return self._pool[problem.name]

    def _judged(self, prompt: PromptedProblem, programs: Sequence[str]) -> list[Sample]:
        texts = [self.format_response(program) for program in programs]
        eos = self.tokenizer.eos_token_id
        tokens = [
            (*self.tokenizer(text, add_special_tokens=False)["input_ids"], eos) for text in texts
        ]
        fitting = [i for i, row in enumerate(tokens) if len(row) <= self.max_tokens]
        judgements = self.judge.judge([Submission(prompt.problem, texts[i]) for i in fitting])
        samples = [
            Sample(prompt, tokens[i], None, judgement, pay(judgement, self.reward), False)
            for i, judgement in zip(fitting, judgements, strict=True)
        ]
        return [sample for sample in samples if sample.reward is not None]
