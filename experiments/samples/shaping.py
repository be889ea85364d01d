"""What a batch's rewards become for the learner alone: by length (HAPO), by noise (ReDit).

Both say more than a judgement does: one remembers the batches before, the other draws. So they come
after a batch is kept, stored for replay and measured, all of which know the judgement's reward.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from envs.reward import RewardConfig, conciseness_reward
from experiments.samples.sample import Sample
from experiments.seeds import stream


@dataclass
class Shaping:
    """Remembers the shortest accepted response that a policy wrote to each problem."""

    config: RewardConfig
    seed: int
    shortest: dict[str, int] = field(default_factory=dict)  # problem → tokens, EOS included

    def shaped(self, samples: Sequence[Sample], step: int) -> Sequence[Sample]:
        """The batch of `step` with the rewards that it is learned from.

        Lengths are compared with those of the batches before, as its authors do. People's programs
        are paid like any; they do not count as the shortest, since they are no policy's.
        """
        if not self.config.shapes_batches:
            return samples
        noise = stream(self.seed, "dither", step)
        paid = [
            replace(s, reward=s.reward + self._by_length(s) + noise.gauss(0, self.config.dither))
            for s in samples
        ]
        for sample in samples:
            if sample.accepted and not sample.offline:
                name, tokens = sample.prompt.problem.name, len(sample.tokens)
                self.shortest[name] = min(tokens, self.shortest.get(name, tokens))
        return paid

    def _by_length(self, sample: Sample) -> float:
        shortest = self.shortest.get(sample.prompt.problem.name)
        given = (len(sample.tokens), shortest, sample.accepted)
        return self.config.conciseness * conciseness_reward(*given)

    def state_dict(self) -> dict[str, Any]:
        """What is remembered."""
        return {"shortest": dict(self.shortest)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Back to what `state_dict` held."""
        self.shortest = dict(state["shortest"])
