"""Signs that a run can learn nothing, or hardly: one line each, with the key to change."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from envs.import_by_name import load_function
from experiments.config.checks import accepts_missing_logprobs
from experiments.config.schema import RunConfig
from experiments.sample import Sample

FIRST_AFTER = 2  # steps
TRUNCATED_SHARE = 0.1  # of the responses; above, it is said
PROGRAMLESS_SHARE = 0.5
UNSUPPLIED_SHARE = 0.1  # of the groups; above, it is said
FEWEST_RESPONSES = 8  # below, a share of them says nothing
STILL_NATS = 1e-4  # of KL to the base in a whole response; below, the policy has not moved


@dataclass
class LearningSigns:
    """Counts of a run's fresh responses, since its start or since it was resumed."""

    config: RunConfig
    steps: int = 0
    responses: int = 0
    truncated: int = 0
    programless: int = 0
    accepted: int = 0
    groups: int = 0  # with fresh responses
    all_groups: int = 0
    unsupplied_groups: int = 0  # without the data set's programs that they should have
    mixed_groups: int = 0  # with different rewards
    low: float = float("inf")  # the least reward
    high: float = float("-inf")

    def note(self, samples: Sequence[Sample]) -> None:
        """Count a batch; offline and replayed programs say nothing of the policy."""
        self.steps += 1
        groups: dict[str, set[float]] = {}
        if self.config.train.offline_share:
            problems = {sample.prompt.problem.name for sample in samples}
            supplied = {sample.prompt.problem.name for sample in samples if sample.offline}
            self.all_groups += len(problems)
            self.unsupplied_groups += len(problems - supplied)
        for sample in samples:
            if not sample.fresh or sample.reward is None:
                continue
            self.responses += 1
            self.truncated += sample.truncated
            self.programless += not sample.judgement.program
            self.accepted += sample.accepted
            self.low, self.high = min(self.low, sample.reward), max(self.high, sample.reward)
            groups.setdefault(sample.prompt.problem.name, set()).add(sample.reward)
        self.groups += len(groups)
        self.mixed_groups += sum(len(rewards) > 1 for rewards in groups.values())

    def lines(self, kl_to_base: float = float("nan")) -> list[str]:
        """Return what to tell the user. `kl_to_base`: of the trained policy; NaN: not measured."""
        rewards = self._rewards() if self.responses else ""
        found = [rewards, self._truncated(), self._programless()] if self.responses else []
        found.append(self._unsupplied())
        if self.steps and 0 <= kl_to_base < STILL_NATS and not rewards:  # else that is why
            rate = self.config.algo.learning_rate
            found.append(
                f"the KL to the base is {kl_to_base:.1g} nats a response: the policy hardly moved; "
                f"raise algo.learning_rate={rate:g} or steps={self.config.steps}"
            )
        return [f"NOTE: {line}" for line in found if line]

    def _rewards(self) -> str:
        train, so_far = self.config.train, f"in {self.steps} step{'s' * (self.steps > 1)}"
        if self.mixed_groups:
            return ""
        if self.low == self.high and self.accepted == self.responses:
            return f"every response was accepted {so_far}: use harder problems"
        if self.accepted:
            return (
                f"no problem's responses had different rewards {so_far}: objectives that compare "
                f"them have no gradient; raise train.group_size={train.group_size}"
            )
        if self.low != self.high or train.offline_share or train.replay_share:
            return ""
        mixed = ", mix in the data set's programs (train.offline_share)" * self._takes_programs()
        return (
            f"no response was accepted {so_far}: there is no reward to learn from; use easier "
            f"problems (task.difficulty){mixed}, or begin with supervised training (algo=sft "
            "train.offline_share=1)"
        )

    def _takes_programs(self) -> bool:
        """Whether the objective may learn from programs without log-probs."""
        algo, reward = self.config.algo, self.config.task.reward
        needs = load_function(algo.core, "algo.core")(algo, reward.high).needs
        return accepts_missing_logprobs(self.config, needs)

    def _truncated(self) -> str:
        share = self.truncated / self.responses
        if self.responses < FEWEST_RESPONSES or share <= TRUNCATED_SHARE:
            return ""
        limit = self.config.task.max_response_tokens
        return f"{share:.0%} of the responses were cut off; raise task.max_response_tokens={limit}"

    def _unsupplied(self) -> str:
        share = self.unsupplied_groups / max(self.all_groups, 1)
        if share <= UNSUPPLIED_SHARE:
            return ""
        limit = self.config.task.max_response_tokens
        return (
            f"{share:.0%} of the groups had none of the data set's programs, but responses in "
            f"their place; longer programs are left out: raise task.max_response_tokens={limit}"
        )

    def _programless(self) -> str:
        share = self.programless / self.responses
        if (
            self.responses < FEWEST_RESPONSES
            or share <= PROGRAMLESS_SHARE
            or self.config.task.environment
        ):
            return ""
        return (
            f"{share:.0%} of the responses have no program; show the model how to answer "
            "(task.few_shot, task.prompt), or use a model that follows instructions"
        )
