"""Frozen batches: the batches that an earlier run logged, in their order, instead of new rollouts.

Responses and rewards are the same bits for every algorithm, so two runs differ in the loss alone.
Nothing is generated and nothing is judged.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NoReturn

from envs.environment import JudgeStats
from experiments.config.schema import RunConfig
from experiments.errors import UserError
from experiments.replay import sample_log
from experiments.replay.earlier_runs import mismatch_reason, with_run_origin
from experiments.replay.judgement_cache import JudgingCosts
from experiments.replay.sample_log import samples_of
from experiments.sample import PromptedProblem, Sample


class FrozenBatches:
    """A `BatchSource` without an engine. Raises UserError if the logged batches do not fit."""

    offline = None
    replay = None

    def __init__(
        self,
        config: RunConfig,
        prompts: Sequence[PromptedProblem],
        judge_version: str,
        costs: JudgingCosts,
        accepts_missing_logprobs: bool,
    ) -> None:
        """`accepts_missing_logprobs`: whether the algorithm learns without behaviour log-probs."""
        self.config, self.judge_version, self.costs = config, judge_version, costs
        self.accepts_missing_logprobs = accepts_missing_logprobs
        self.run = Path(config.replay.from_runs[0])
        self.digest = sample_log.digest(self.run)
        numbers = sample_log.steps(self.run)
        if missing := set(range(1, len(numbers) + 1)) - set(numbers):
            self._refuse(f"batch {min(missing)} is missing, but later ones exist")
        if config.steps > len(numbers):
            self._refuse(f"it recorded {len(numbers)} batches; use steps={len(numbers)} or fewer")
        names = set(sample_log.read_all(self.run)["problem"].unique().to_pylist())
        self._prompts = {p.problem.name: p for p in prompts if p.problem.name in names}
        if absent := sorted(names - self._prompts.keys()):
            self._refuse(f"{absent[0]} is not in this run's train split; use the task of that run")
        self._step = 0

    def _refuse(self, reason: str) -> NoReturn:
        raise UserError(f"replay.from_runs=[{self.run}]: {reason}")

    def collect(self, step: int) -> list[Sample]:
        """Return the batch that the logged run trained on at `step`."""
        table, self._step = sample_log.read(self.run, step), step
        names = table["problem"].to_pylist()
        prompts = [self._prompts[name] for name in names]
        for row, prompt in zip(table.to_pylist(), prompts, strict=True):
            if reason := mismatch_reason(row, prompt, self.judge_version):
                self._refuse(f"batch {step}, {row['problem']}: {reason}")
            if row["logps"] is None and not self.accepts_missing_logprobs:
                self._refuse(
                    f"batch {step} has responses without rollout log-probs, which "
                    f"algo={self.config.algo.name} needs"
                )
        samples = samples_of(table, prompts, self.config.task.reward)
        samples = [with_run_origin(sample) for sample in samples]
        self.costs.charge(samples)
        return samples

    def upcoming_prompts(self, batches: int) -> list[PromptedProblem]:
        """Return the prompts of the next batches."""
        steps = range(self._step + 1, min(self._step + batches, self.config.steps) + 1)
        tables = [sample_log.read(self.run, step) for step in steps]
        names = [name for table in tables for name in table["problem"].to_pylist()]
        return [self._prompts[name] for name in dict.fromkeys(names)]

    @property
    def judging_stats(self) -> list[JudgeStats]:
        """The cost of judging the batches."""
        return [self.costs.stats]

    @property
    def description(self) -> dict[str, Any]:
        """The source of the batches, for run.json."""
        return {"frozen": {"run": str(self.run), "digest": self.digest}}

    def metrics(self) -> dict[str, float]:
        """Return no metrics: there is no replay buffer."""
        return {}

    def state_dict(self) -> dict[str, Any]:
        """Return the position and the charged costs."""
        return {"step": self._step, "digest": self.digest, "charges": self.costs.state_dict()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore what `state_dict` returned. Raises UserError if the logged run has changed."""
        if state["digest"] != self.digest:
            self._refuse("it has changed since the checkpoint; restore it")
        self._step = state["step"]
        self.costs.load_state_dict(state["charges"])
