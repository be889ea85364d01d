"""Q̂_0 of each sample's prompt for SPO: Monte-Carlo, or pooled with recent responses."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from algorithms.base import Batch
from algorithms.spo import pooled_soft_value
from algorithms.tensors import masked_sum
from experiments.samples.reference_rewards import ReferenceRewards
from experiments.samples.sample import Sample

RECENT = 64  # responses to a problem that the online estimate looks back on


class InitialValues:
    """Soft values of prompts from reference responses; `online` adds the run's own recent ones."""

    def __init__(self, reference: ReferenceRewards, beta: float, online: bool) -> None:
        self.reference, self.beta, self.online = reference, beta, online
        self._recent: dict[str, deque[tuple[float, float]]] = defaultdict(
            lambda: deque(maxlen=RECENT)
        )

    def state_dict(self) -> dict[str, Any]:
        """The recent responses, and what of the reference's was charged."""
        recent = {problem: list(pairs) for problem, pairs in self._recent.items()}
        return {"recent": recent, "reference": self.reference.state_dict()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Back to what `state_dict` held."""
        for problem, pairs in state["recent"].items():
            self._recent[problem].extend(pairs)
        self.reference.load_state_dict(state["reference"])

    def of(self, samples: Sequence[Sample], batch: Batch) -> Tensor:
        """(batch,) one value for each sample, equal within a group.

        Online values take earlier steps' responses only, so that no response has a part in the
        value that it is compared with.
        """
        prompts = {sample.prompt.problem.name: sample.prompt for sample in samples}
        known = self.reference.of(list(prompts.values()))
        values = {
            name: self._estimate(name, rewards)
            for name, rewards in zip(prompts, known, strict=True)
        }
        if self.online:
            self._remember(samples, batch)
        rows = [values[sample.prompt.problem.name] for sample in samples]
        return torch.tensor(rows, dtype=batch.rewards.dtype, device=batch.rewards.device)

    def _estimate(self, problem: str, reference: Tensor) -> float:
        recent = torch.tensor(list(self._recent.get(problem, ())), dtype=torch.float64)
        rewards, log_weights = recent.view(-1, 2).T
        return float(pooled_soft_value(reference, rewards, log_weights, self.beta))

    def _remember(self, samples: Sequence[Sample], batch: Batch) -> None:
        log_weights = masked_sum(batch.ref_logp - batch.behaviour_logp, batch.mask).tolist()
        for sample, log_weight in zip(samples, log_weights, strict=True):
            if sample.fresh:
                pair = (sample.reward, log_weight)
                self._recent[sample.prompt.problem.name].append(pair)
