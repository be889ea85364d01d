"""One batch's responses: which problems come next, who answers them, and what the judge says."""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from envs.environment import Environment, JudgeStats
from experiments.config.schema import RunConfig
from experiments.engines.base import Engine, Sampling
from experiments.replay.buffer import ReplayBuffer
from experiments.replay.offline_programs import OfflinePrograms
from experiments.rollout.generation import Responder, overlaps
from experiments.run_dir.budget import Ledger
from experiments.sample import Origin, PromptedProblem, Sample
from experiments.seeds import seed_for, stream

RESAMPLINGS = 10  # rounds in which a batch's groups without a spread are replaced; DAPO's code too


@dataclass
class Rollouts:
    """Draws problems in an order that depends on the seed alone: the same for every algorithm."""

    config: RunConfig
    prompts: Sequence[PromptedProblem]
    engine: Engine
    judge: Environment
    tokenizer: object
    offline: OfflinePrograms | None
    ledger: Ledger
    run: str  # the run folder's name, part of each sample's origin
    replay: ReplayBuffer | None = None
    replay_until: int | None = None  # the last step with replayed responses; None: all have some

    def __post_init__(self) -> None:
        self._order, self._taken = self._shuffled(), 0
        self._drawn: deque[PromptedProblem] = deque()
        self._beside: dict[int, list[list[Sample]]] = {}  # batch planned → others' samples in it
        self.sampling = Sampling(
            max_tokens=self.config.task.max_response_tokens,
            temperature=self.config.train.temperature,
        )

    def state_dict(self) -> dict[str, Any]:
        """How many problems were taken, in their order."""
        return {"taken": self._taken}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """On to the problem after those."""
        self._taken = state["taken"]
        self._order = itertools.islice(self._shuffled(), self._taken, None)

    def _shuffled(self) -> Iterator[int]:
        epoch = 0
        while True:
            order = list(range(len(self.prompts)))
            stream(self.config.seed, "order", epoch).shuffle(order)
            yield from order
            epoch += 1

    def _next(self, count: int) -> list[PromptedProblem]:
        self._draw(count)
        self._taken += count
        return [self._drawn.popleft() for _ in range(count)]

    def _draw(self, count: int) -> None:
        while len(self._drawn) < count:
            self._drawn.append(self.prompts[next(self._order)])

    def upcoming_prompts(self, batches: int) -> list[PromptedProblem]:
        """The prompts of the next batches, which stay to be collected."""
        count = batches * self.config.train.prompts
        self._draw(count)
        return list(itertools.islice(self._drawn, count))

    def plan(self, batch: int, step: int) -> tuple[list[PromptedProblem], list[list[int]]] | None:
        """The prompts of a batch and its responses' seeds, `step` being the next to be collected.

        None where batches before it decide on them: groups that make way, samples that are used
        again. Waits for what the judge says of the data set's programs to these prompts.
        """
        if self.replay is not None or self.config.train.resample_zero_variance:
            return None
        prompts = self._prompts_of(batch, step)
        self._beside[batch] = [self._offline(prompt, batch) for prompt in prompts]
        return prompts, self._seeds(batch, self._missing(self._beside[batch]), 0)

    def prefetch(self, batch: int, step: int) -> None:
        """Have the data set's programs to a batch's prompts judged meanwhile, where that can be."""
        if self.offline is not None:
            for prompt in self._prompts_of(batch, step):
                self.offline.prefetch(prompt)

    def _prompts_of(self, batch: int, step: int) -> list[PromptedProblem]:
        return self.upcoming_prompts(batch - step + 1)[(batch - step) * self.config.train.prompts :]

    def _missing(self, others: list[list[Sample]]) -> list[int]:
        """How many responses are to be written beside these."""
        return [self.config.train.group_size - len(samples) for samples in others]

    def collect(self, step: int) -> list[Sample]:
        """Judged samples, each prompt's group adjacent: fresh ones, replayed, offline.

        A group in which the judge itself failed is left out whole: its mean would be another. With
        `train.resample_zero_variance`, groups whose rewards are all equal make way for further
        prompts' (DAPO's dynamic sampling, 2503.14476), as often as RESAMPLINGS allows; what they
        cost is in the budget, and the last round's stand as they are.
        """
        train = self.config.train
        groups = self._groups(self._next(train.prompts), step, 0)
        if train.resample_zero_variance:
            for row in range(1, RESAMPLINGS + 1):
                groups = [group for group in groups if len({s.reward for s in group}) > 1]
                if len(groups) == train.prompts:
                    break
                further = self._next(train.prompts - len(groups))
                groups += self._groups(further, step, row * train.prompts)
        samples = [sample for group in groups for sample in group]
        if self._replays(step + 1):
            self.replay.add_batch(samples, step)
        return samples

    @property
    def judging_stats(self) -> list[JudgeStats]:
        """What judging others' programs has cost."""
        offline = [] if self.offline is None else [self.offline.judging_stats]
        return offline if self.replay is None else [*offline, self.replay.charges.stats]

    @property
    def description(self) -> dict[str, Any]:
        """What became of others' samples, for run.json."""
        found: dict[str, Any] = {}
        if self.offline is not None:
            found["offline"] = dict(self.offline.counts)
        if self.replay is not None:
            left_out = {str(s): dict(s.left_out) for s in self.replay.sources}
            found["replay"] = dict(self.replay.counts) | {"left_out": left_out}
        return found

    def metrics(self) -> dict[str, float]:
        """Of the replay store, where there is one."""
        return {} if self.replay is None else self.replay.metrics()

    def _groups(
        self, prompts: list[PromptedProblem], step: int, first_row: int
    ) -> list[list[Sample]]:
        """The groups that the judge did not fail in; `first_row` keeps their seeds apart."""
        others = self._beside.pop(step, None) or [
            [*self._replayed(prompt, step, row), *self._offline(prompt, step)]
            for row, prompt in enumerate(prompts, first_row)
        ]
        for prompt in prompts if self.offline is not None else ():
            self.offline.charge(prompt)
        fresh = self._fresh(prompts, self._missing(others), step, first_row)
        groups = [[*own, *other] for own, other in zip(fresh, others, strict=True)]
        return [g for g in groups if all(sample.reward is not None for sample in g)]

    def _offline(self, prompt: PromptedProblem, step: int) -> list[Sample]:
        if self.offline is None:
            return []
        count = round(self.config.train.group_size * self.config.train.offline_share)
        return self.offline.draw(prompt, count, self.config.seed, step)

    def _replays(self, step: int) -> bool:
        # A step whose groups the judge all failed in counts here, and is no batch to the learner.
        ended = self.replay_until is not None and step > self.replay_until
        return self.replay is not None and not ended

    def _replayed(self, prompt: PromptedProblem, step: int, row: int) -> list[Sample]:
        if not self._replays(step):
            return []
        count = round(self.config.train.group_size * self.config.train.replay_share)
        return self.replay.draw(prompt, count, self.config.seed, step, row)

    def _fresh(
        self, prompts: list[PromptedProblem], counts: list[int], step: int, first_row: int
    ) -> list[list[Sample]]:
        seeds = self._seeds(step, counts, first_row)
        parts = (self.engine, self.judge, self.tokenizer, self.config.task.reward)
        responder = Responder(*parts, overlaps(self.config), self.ledger)
        origin = Origin("policy", self.run, step)
        written, samples = responder.respond(prompts, seeds, self.sampling, origin)
        self.ledger.counts.generated_tokens += sum(len(c.tokens) for c in written)
        rest = iter(samples)
        return [[next(rest) for _ in of] for of in seeds]

    def _seeds(self, step: int, counts: list[int], first_row: int) -> list[list[int]]:
        return [
            [seed_for(self.config.seed, "train", step, row, i) for i in range(count)]
            for row, count in enumerate(counts, first_row)
        ]
