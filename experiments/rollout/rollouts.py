"""Rollouts: draw problems, generate and judge responses, add offline and replayed samples."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

from algorithms.base import Steps
from envs.problem import JudgeStats
from experiments.config.schema import RunConfig
from experiments.engines.base import Sampling
from experiments.replay.buffer import ReplayBuffer
from experiments.replay.programs import OfflinePrograms
from experiments.replay.sample_log import FrozenBatches
from experiments.rollout.conversations import generation_texts, turns_of
from experiments.rollout.generate import Responder
from experiments.rollout.prefixes import grow
from experiments.rollout.problem_order import Curriculum, ProblemOrder
from experiments.run_dir.ledger import Ledger
from experiments.sample import Origin, PromptedProblem, Sample, seed_for

MAX_RESAMPLINGS = 10  # rounds that replace a batch's zero-variance groups, as in DAPO's code


@dataclass(eq=False)
class Rollouts:
    """Collects batches of judged samples."""

    config: RunConfig
    prompts: Sequence[PromptedProblem]
    responder: Responder
    run: str  # the run folder's name, part of each sample's origin
    sampling: Sampling
    ledger: Ledger
    offline: OfflinePrograms | None = None
    replay: ReplayBuffer | None = None
    replay_until: int | None = None  # last step with replayed responses; None: no limit
    tree: Steps | None = None  # of an algorithm whose group is one

    def __post_init__(self) -> None:
        self.train, self.seed = self.config.train, self.config.seed
        self.curriculum = Curriculum(self.seed) if self.train.curriculum == "band" else None
        self.order = ProblemOrder(self.prompts, self.seed, self.curriculum)
        # planned batch → one list a group
        self._offline_samples: dict[int, list[list[Sample]]] = {}

    def state_dict(self) -> dict[str, Any]:
        """Return the position in the problem order."""
        return self.order.state_dict()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore what `state_dict` returned."""
        self.order.load_state_dict(state)

    def upcoming_prompts(self, batches: int) -> list[PromptedProblem]:
        """Return the prompts of the next batches; with a curriculum there may be fewer."""
        return self.order.upcoming(batches * self.train.prompts, self.train.prompts)

    def plan(self, batch: int, step: int) -> tuple[list[PromptedProblem], list[list[int]]] | None:
        """Return a batch's prompts and response seeds; `step` is the next batch to be collected.

        None if earlier batches decide (dynamic sampling, replay, curriculum), the judgements of
        this one (conversations), or if responses begin with others' tokens (resets, trees). Waits
        for the judgements of the offline programs for these prompts.
        """
        decided = self.replay is not None or self.train.resample_zero_variance
        begun = self.tree is not None or self.train.reset_share > 0
        if decided or begun or self.responder.dialogue is not None:
            return None
        prompts = self._prompts_of(batch, step)
        if len(prompts) < self.train.prompts:
            return None
        self._offline_samples[batch] = [self._offline(prompt, batch) for prompt in prompts]
        return prompts, self._seeds(batch, self._offline_samples[batch], 0)

    def prefetch(self, batch: int, step: int) -> None:
        """Prefetch judgements of the offline programs for a batch's prompts."""
        if self.offline is not None:
            for prompt in self._prompts_of(batch, step):
                self.offline.prefetch(prompt)

    def _prompts_of(self, batch: int, step: int) -> list[PromptedProblem]:
        return self.upcoming_prompts(batch - step + 1)[(batch - step) * self.train.prompts :]

    def collect(self, step: int) -> list[Sample]:
        """Return judged samples: each prompt's group is adjacent, first fresh, replayed, offline.

        A group with an infrastructure error is left out whole, since its mean would be another.
        With `train.resample_zero_variance`, zero-variance groups are replaced by groups of further
        prompts (DAPO's dynamic sampling, 2503.14476), at most MAX_RESAMPLINGS times. Replaced
        groups stay in the budget; the last round's groups are kept as they are.
        """
        train = self.train
        if self.curriculum is not None:
            self.curriculum.start_batch()
        groups = self._groups(self.order.take(train.prompts), step, 0)
        if train.resample_zero_variance:
            for row in range(1, MAX_RESAMPLINGS + 1):
                groups = [group for group in groups if len({s.reward for s in group}) > 1]
                if len(groups) == train.prompts:
                    break
                further = self.order.take(train.prompts - len(groups))
                groups += self._groups(further, step, row * train.prompts)
        samples = list(chain.from_iterable(groups))
        if (replay := self._replays(step + 1)) is not None:
            replay.add_batch(samples, step)
        return samples

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
        fresh = self._fresh(prompts, self._seeds(step, stored, first_row), step)
        if self.curriculum is not None:
            self.curriculum.note_responses(chain.from_iterable(fresh))
        groups = [[*new, *old] for new, old in zip(fresh, stored, strict=True)]
        return [g for g in groups if all(sample.reward is not None for sample in g)]

    def _offline(self, prompt: PromptedProblem, step: int) -> list[Sample]:
        if self.offline is None:
            return []
        count = round(self.train.group_size * self.train.offline_share)
        return self.offline.draw(prompt, count, self.seed, step)

    def _replays(self, step: int) -> ReplayBuffer | None:
        """Return the buffer that batch `step` replays from.

        A step whose groups all had infrastructure errors counts here, but not for the learner.
        """
        last = self.replay_until
        return self.replay if last is None or step <= last else None

    def _replayed(self, prompt: PromptedProblem, step: int, row: int) -> list[Sample]:
        if (replay := self._replays(step)) is None:
            return []
        count = round(self.train.group_size * self.train.replay_share)
        return replay.draw(prompt, count, self.seed, step, row)

    def _seeds(self, step: int, stored: list[list[Sample]], first_row: int) -> list[list[int]]:
        """Return a seed for each response that a group generates beside its stored samples."""
        return [
            [
                seed_for(self.seed, "train", step, row, i)
                for i in range(self.train.group_size - len(samples))
            ]
            for row, samples in enumerate(stored, first_row)
        ]

    def _fresh(
        self, prompts: list[PromptedProblem], seeds: list[list[int]], step: int
    ) -> list[list[Sample]]:
        origin = Origin("policy", self.run, step)
        if self.tree is not None:
            samples = grow(self.responder, prompts, seeds, self.sampling, origin, self.tree)
        else:
            begun = self._prefixes(prompts, seeds)
            _, samples = self.responder.respond(prompts, seeds, self.sampling, origin, begun)
        remaining = iter(samples)
        groups = [[next(remaining) for _ in group] for group in seeds]
        counts = self.ledger.counts
        generated = sum(sample.generated for sample in samples)
        counts.generated_tokens += generated
        if self.tree is None:  # which charges its reading itself
            counts.observation_tokens += sum(len(sample.tokens) for sample in samples) - generated
            lengths = [len(prompt.tokens) for prompt in prompts]
            turns = [[turns_of(sample) for sample in group] for group in groups]
            self.ledger.charge_generation(generation_texts(lengths, turns))
        return groups

    def _prefixes(
        self, prompts: list[PromptedProblem], seeds: list[list[int]]
    ) -> list[list[tuple[int, ...]]] | None:
        """Return the prefix that each response continues (DR-PO); only a group's first have one."""
        resets = round(self.train.group_size * self.train.reset_share)
        if self.offline is None or not resets:
            return None
        draw = self.offline.prefix
        return [
            [draw(prompt, seed) if n < resets else () for n, seed in enumerate(group)]
            for prompt, group in zip(prompts, seeds, strict=True)
        ]

    @property
    def judging_stats(self) -> list[JudgeStats]:
        """The cost of judging offline and replayed programs."""
        offline = [] if self.offline is None else [self.offline.costs.stats]
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
        parts = [part for part in (self.curriculum, self.replay) if part is not None]
        return {name: value for part in parts for name, value in part.metrics().items()}


BatchSource = Rollouts | FrozenBatches
