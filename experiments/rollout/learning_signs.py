"""Three signs that a run learns nothing: no reward, no variance, truncation. One line each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from experiments.config.schema import RunConfig
from experiments.sample import Sample

FIRST_AFTER = 2  # steps
TRUNCATED_SHARE = 0.5  # of the responses; above, it is said


@dataclass
class LearningSigns:
    """Counts of a run's fresh responses, since its start or since it was resumed."""

    config: RunConfig
    steps: int = 0
    responses: int = 0
    truncated: int = 0
    accepted: int = 0
    mixed_groups: int = 0  # with different rewards

    def note(self, samples: Sequence[Sample]) -> None:
        """Count a batch; offline and replayed programs say nothing of the policy."""
        self.steps += 1
        groups: dict[str, set[float]] = {}
        for sample in samples:
            if sample.fresh and sample.reward is not None:
                self.responses += 1
                self.truncated += sample.truncated
                self.accepted += sample.accepted
                groups.setdefault(sample.prompt.problem.name, set()).add(sample.reward)
        self.mixed_groups += sum(len(rewards) > 1 for rewards in groups.values())

    def lines(self) -> list[str]:
        """Return what to tell the user."""
        if not self.responses:
            return []
        found, train, task = list[str](), self.config.train, self.config.task
        if not self.accepted and not (train.offline_share or train.replay_share):
            found.append(
                "no response was accepted: there is no reward to learn from; use easier problems, "
                "or mix in the data set's programs (train.offline_share)"
            )
        elif not self.mixed_groups:
            found.append(
                "no problem's responses had different rewards: objectives that compare them have "
                f"no gradient; raise train.group_size={train.group_size} or use other problems"
            )
        if self.truncated > TRUNCATED_SHARE * self.responses:
            found.append(
                f"{self.truncated / self.responses:.0%} of the responses were cut off; raise "
                f"task.max_response_tokens={task.max_response_tokens}"
            )
        return [f"NOTE: {line}" for line in found]
