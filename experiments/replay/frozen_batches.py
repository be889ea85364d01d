"""Frozen rollouts: the batches that an earlier run kept, in their order, instead of new ones.

The same responses and rewards, bit for bit, whatever the algorithm: what differs between two runs
is the loss alone. Nothing is written and nothing is judged.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from envs.environment import JudgeStats
from experiments.config.schema import RunConfig
from experiments.errors import UserError
from experiments.replay import sample_log
from experiments.replay.earlier_runs import mismatch_reason, with_run_origin
from experiments.replay.judgement_cache import JudgingCosts
from experiments.replay.sample_log import samples_of
from experiments.sample import PromptedProblem, Sample


class FrozenBatches:
    """Stands where `Rollouts` stands. Raises UserError where the run's batches do not fit."""

    replay = None

    def __init__(
        self,
        config: RunConfig,
        prompts: Sequence[PromptedProblem],
        judge_version: str,
        charges: JudgingCosts,
        accepts_missing_logprobs: bool,
    ) -> None:
        """`accepts_missing_logprobs`: the algorithm learns from responses without log-probs as well."""
        self.config, self.judge_version, self.charges = config, judge_version, charges
        self.accepts_missing_logprobs = accepts_missing_logprobs
        self.run = Path(config.replay.from_runs[0])
        self.digest = sample_log.digest(self.run)
        numbers = sample_log.steps(self.run)
        if missing := set(range(1, len(numbers) + 1)) - set(numbers):
            self._refuse(f"batch {min(missing)} is not there, though later ones are")
        if config.steps > len(numbers):
            self._refuse(f"it kept {len(numbers)} batches; use steps={len(numbers)} or fewer")
        names = set(sample_log.read_all(self.run)["problem"].unique().to_pylist())
        self._prompts = {p.problem.name: p for p in prompts if p.problem.name in names}
        if missing := sorted(names - self._prompts.keys()):
            self._refuse(f"{missing[0]} is no problem of this run's train split; use its task")
        self._step = 0

    def _refuse(self, told: str) -> None:
        raise UserError(f"replay.from_runs=[{self.run}]: {told}")

    def collect(self, step: int) -> list[Sample]:
        """The batch that the recorded run trained on at `step`."""
        table, self._step = sample_log.read(self.run, step), step
        names = table["problem"].to_pylist()
        prompts = [self._prompts[name] for name in names]
        for row, prompt in zip(table.to_pylist(), prompts, strict=True):
            if why := mismatch_reason(row, prompt, self.judge_version):
                self._refuse(f"batch {step}, {row['problem']}: {why}")
            if row["logps"] is None and not self.accepts_missing_logprobs:
                self._refuse(
                    f"batch {step} has responses without their writer's log-probs, which "
                    f"algo={self.config.algo.name} does not learn from"
                )
        samples = samples_of(table, prompts, self.config.task.reward)
        samples = [with_run_origin(sample) for sample in samples]
        self.charges.charge(samples)
        return samples

    def upcoming_prompts(self, batches: int) -> list[PromptedProblem]:
        """The prompts of the next batches."""
        steps = range(self._step + 1, min(self._step + batches, self.config.steps) + 1)
        tables = [sample_log.read(self.run, step) for step in steps]
        names = [name for table in tables for name in table["problem"].to_pylist()]
        return [self._prompts[name] for name in dict.fromkeys(names)]

    @property
    def judging_stats(self) -> list[JudgeStats]:
        """What judging the batches has cost."""
        return [self.charges.stats]

    @property
    def description(self) -> dict[str, Any]:
        """For run.json."""
        return {"frozen": {"run": str(self.run), "digest": self.digest}}

    def metrics(self) -> dict[str, float]:
        """None of its own."""
        return {}

    def state_dict(self) -> dict[str, Any]:
        """How far it came, and what was charged."""
        return {"step": self._step, "digest": self.digest, "charges": self.charges.state_dict()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Back to what `state_dict` held."""
        if state["digest"] != self.digest:
            self._refuse("it has changed since the checkpoint; bring it back")
        self._step = state["step"]
        self.charges.load_state_dict(state["charges"])
