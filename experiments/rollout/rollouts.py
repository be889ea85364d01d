"""Rollouts: draw problems, generate and judge responses, add offline and replayed samples."""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from envs.environment import Environment, JudgeStats
from experiments.config.schema import RunConfig
from experiments.engines.base import Engine, Sampling
from experiments.replay.buffer import ReplayBuffer
from experiments.replay.sources import OfflinePrograms
from experiments.rollout.conversations import Dialogue, generation_texts, turns_of
from experiments.rollout.curriculum import Curriculum
from experiments.rollout.generate import Responder, overlaps
from experiments.run_dir.ledger import Ledger
from experiments.sample import Origin, PromptedProblem, Sample
from experiments.seeds import seed_for, stream

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

MAX_RESAMPLINGS = 10  # rounds that replace a batch's zero-variance groups, as in DAPO's code


def response_limit(config: RunConfig) -> int:
    """Return task.max_response_tokens, which `resolve_defaults` has set."""
    assert config.task.max_response_tokens is not None
    return config.task.max_response_tokens


@dataclass
class Rollouts:
    """Collect batches. The order of problems depends on the seed alone, not on the algorithm.

    With `train.curriculum` it also depends on the judgements so far.
    """

    config: RunConfig
    prompts: Sequence[PromptedProblem]
    engine: Engine
    judge: Environment
    tokenizer: PreTrainedTokenizerBase
    offline: OfflinePrograms | None
    ledger: Ledger
    run: str  # the run folder's name, part of each sample's origin
    replay: ReplayBuffer | None = None
    replay_until: int | None = None  # the last step with replayed responses; None: no limit
    dialogue: Dialogue | None = None  # of conversations; None: a response is one answer

    def __post_init__(self) -> None:
        curriculum = self.config.train.curriculum == "band"
        self._curriculum = Curriculum(self.config.seed) if curriculum else None
        self._order, self._taken = self._places(0), 0
        self._drawn: deque[tuple[int, PromptedProblem]] = deque()
        self._offline_samples: dict[
            int, list[list[Sample]]
        ] = {}  # planned batch → one list a group
        self.sampling = Sampling(
            max_tokens=response_limit(self.config),
            temperature=self.config.train.temperature,
        )

    def state_dict(self) -> dict[str, Any]:
        """Return the position in the shuffled problem order, and the curriculum's state."""
        curriculum = self._curriculum
        more = {} if curriculum is None else {"curriculum": curriculum.state_dict()}
        return {"taken": self._taken, **more}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue after that position."""
        self._taken = state["taken"]
        self._order = self._places(self._taken)
        if self._curriculum is not None:
            self._curriculum.load_state_dict(state["curriculum"])

    def _shuffled(self) -> Iterator[int]:
        epoch = 0
        while True:
            order = list(range(len(self.prompts)))
            stream(self.config.seed, "order", epoch).shuffle(order)
            yield from order
            epoch += 1

    def _places(self, after: int) -> Iterator[tuple[int, PromptedProblem]]:
        """Yield (its place in the shuffled order, problem) of each draw after place `after`."""
        for place, index in itertools.islice(enumerate(self._shuffled(), 1), after, None):
            prompt, number = self.prompts[index], (place - 1) // len(self.prompts)
            if self._curriculum is None or self._curriculum.is_due(prompt.problem.name, number):
                yield place, prompt

    def _next(self, count: int) -> list[PromptedProblem]:
        self._draw(count)
        drawn = [self._drawn.popleft() for _ in range(count)]
        before, self._taken = self._taken, drawn[-1][0]
        if self._curriculum is not None:
            names = [prompt.problem.name for _, prompt in drawn]
            self._curriculum.note_draws(names, self._taken - before)
        return [prompt for _, prompt in drawn]

    def _draw(self, count: int) -> None:
        while len(self._drawn) < count:
            self._drawn.append(next(self._order))

    def upcoming_prompts(self, batches: int) -> list[PromptedProblem]:
        """Return the prompts of the next batches without taking them.

        With a curriculum there may be fewer: only draws that no judgement to come can change, which
        are the next batch's and those of the first pass.
        """
        count = batches * self.config.train.prompts
        if self._curriculum is not None:
            first_pass = len(self.prompts) - self._taken
            count = min(count, max(self.config.train.prompts, first_pass))
        self._draw(count)
        return [prompt for _, prompt in itertools.islice(self._drawn, count)]

    def plan(self, batch: int, step: int) -> tuple[list[PromptedProblem], list[list[int]]] | None:
        """Return a batch's prompts and response seeds; `step` is the next batch to be collected.

        None if earlier batches decide (dynamic sampling, replay, curriculum), or the judgements of
        this one (conversations). Waits for the judgements of the offline programs for these
        prompts.
        """
        decided = self.replay is not None or self.config.train.resample_zero_variance
        if decided or self.dialogue is not None:
            return None
        prompts = self._prompts_of(batch, step)
        if len(prompts) < self.config.train.prompts:
            return None
        self._offline_samples[batch] = [self._offline(prompt, batch) for prompt in prompts]
        return prompts, self._seeds(batch, self._fresh_counts(self._offline_samples[batch]), 0)

    def prefetch(self, batch: int, step: int) -> None:
        """Prefetch judgements of the offline programs for a batch's prompts."""
        if self.offline is not None:
            for prompt in self._prompts_of(batch, step):
                self.offline.prefetch(prompt)

    def _prompts_of(self, batch: int, step: int) -> list[PromptedProblem]:
        return self.upcoming_prompts(batch - step + 1)[(batch - step) * self.config.train.prompts :]

    def _fresh_counts(self, stored: list[list[Sample]]) -> list[int]:
        """Return how many responses each group generates beside its stored samples."""
        return [self.config.train.group_size - len(samples) for samples in stored]

    def collect(self, step: int) -> list[Sample]:
        """Return judged samples: each prompt's group is adjacent, first fresh, replayed, offline.

        A group with an infrastructure error is left out whole, since its mean would be another.
        With `train.resample_zero_variance`, zero-variance groups are replaced by groups of further
        prompts (DAPO's dynamic sampling, 2503.14476), at most MAX_RESAMPLINGS times. Replaced
        groups stay in the budget; the last round's groups are kept as they are.
        """
        train = self.config.train
        if self._curriculum is not None:
            self._curriculum.start_batch()
        groups = self._groups(self._next(train.prompts), step, 0)
        if train.resample_zero_variance:
            for row in range(1, MAX_RESAMPLINGS + 1):
                groups = [group for group in groups if len({s.reward for s in group}) > 1]
                if len(groups) == train.prompts:
                    break
                further = self._next(train.prompts - len(groups))
                groups += self._groups(further, step, row * train.prompts)
        samples = [sample for group in groups for sample in group]
        if (replay := self._replay_at(step + 1)) is not None:
            replay.add_batch(samples, step)
        return samples

    @property
    def judging_stats(self) -> list[JudgeStats]:
        """The cost of judging offline and replayed programs."""
        offline = [] if self.offline is None else [self.offline.judging_stats]
        return offline if self.replay is None else [*offline, self.replay.costs.stats]

    @property
    def description(self) -> dict[str, Any]:
        """Counts of offline and replayed samples, for run.json."""
        counts: dict[str, Any] = {}
        if self.offline is not None:
            counts["offline"] = dict(self.offline.counts)
        if self.replay is not None:
            left_out = {str(s): dict(s.left_out) for s in self.replay.sources}
            counts["replay"] = dict(self.replay.counts) | {"left_out": left_out}
        return counts

    def metrics(self) -> dict[str, float]:
        """Return the metrics of the curriculum and the replay buffer, if there are any."""
        parts = [part for part in (self._curriculum, self.replay) if part is not None]
        return {name: value for part in parts for name, value in part.metrics().items()}

    def _groups(
        self, prompts: list[PromptedProblem], step: int, first_row: int
    ) -> list[list[Sample]]:
        """Return the groups without an infrastructure error. `first_row` offsets the seeds."""
        stored = self._offline_samples.pop(step, None) or [
            [*self._replayed(prompt, step, row), *self._offline(prompt, step)]
            for row, prompt in enumerate(prompts, first_row)
        ]
        if self.offline is not None:
            for prompt in prompts:
                self.offline.charge(prompt)
        fresh = self._fresh(prompts, self._fresh_counts(stored), step, first_row)
        if self._curriculum is not None:
            self._curriculum.note_responses(itertools.chain.from_iterable(fresh))
        groups = [[*new, *old] for new, old in zip(fresh, stored, strict=True)]
        return [g for g in groups if all(sample.reward is not None for sample in g)]

    def _offline(self, prompt: PromptedProblem, step: int) -> list[Sample]:
        if self.offline is None:
            return []
        count = round(self.config.train.group_size * self.config.train.offline_share)
        return self.offline.draw(prompt, count, self.config.seed, step)

    def _replay_at(self, step: int) -> ReplayBuffer | None:
        """Return the replay buffer if batch `step` replays.

        A step whose groups all had infrastructure errors counts here, but not for the learner.
        """
        ended = self.replay_until is not None and step > self.replay_until
        return None if ended else self.replay

    def _replayed(self, prompt: PromptedProblem, step: int, row: int) -> list[Sample]:
        if (replay := self._replay_at(step)) is None:
            return []
        count = round(self.config.train.group_size * self.config.train.replay_share)
        return replay.draw(prompt, count, self.config.seed, step, row)

    def _fresh(
        self, prompts: list[PromptedProblem], counts: list[int], step: int, first_row: int
    ) -> list[list[Sample]]:
        seeds = self._seeds(step, counts, first_row)
        responder = Responder(
            engine=self.engine,
            judge=self.judge,
            tokenizer=self.tokenizer,
            reward=self.config.task.reward,
            overlap=overlaps(self.config),
            ledger=self.ledger,
            activity=self.ledger.activity,
            dialogue=self.dialogue,
        )
        origin = Origin("policy", self.run, step)
        _, samples = responder.respond(prompts, seeds, self.sampling, origin)
        remaining = iter(samples)
        groups = [[next(remaining) for _ in group] for group in seeds]
        generated = sum(sample.generated for sample in samples)
        self.ledger.counts.generated_tokens += generated
        read = sum(len(sample.tokens) for sample in samples)
        self.ledger.counts.observation_tokens += read - generated
        lengths = [len(prompt.tokens) for prompt in prompts]
        turns = [[turns_of(sample) for sample in group] for group in groups]
        self.ledger.charge_generation(generation_texts(lengths, turns))
        return groups

    def _seeds(self, step: int, counts: list[int], first_row: int) -> list[list[int]]:
        return [
            [seed_for(self.config.seed, "train", step, row, i) for i in range(count)]
            for row, count in enumerate(counts, first_row)
        ]
