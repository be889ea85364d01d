"""Q̂_0 of each sample's prompt for SPO: Monte-Carlo, or re-estimated from recent responses."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Sequence

import torch
from torch import Tensor

from algorithms.base import Batch
from algorithms.spo import online_soft_value
from algorithms.tensors import masked_sum
from experiments.ledger import Ledger
from experiments.samples import Sample
from experiments.soft_values import SoftValues

RECENT = 64  # responses to a problem that the online estimate looks back on


class InitialValues:
    """`online` adds the estimate from recent responses, where enough of them speak for π_ref."""

    def __init__(
        self, soft_values: SoftValues, ledger: Ledger, online: bool, min_ess: float
    ) -> None:
        self.soft_values, self.ledger = soft_values, ledger
        self.online, self.min_ess = online, min_ess
        self._recent: dict[str, deque[tuple[float, float]]] = defaultdict(
            lambda: deque(maxlen=RECENT)
        )

    def of(self, samples: Sequence[Sample], batch: Batch) -> Tensor:
        """(batch,) one value for each sample, equal within a group.

        Online values come from earlier steps' responses only, so that no response has a part in the
        value that it is compared with.
        """
        prompts = {sample.prompt.problem.name: sample.prompt for sample in samples}
        known = self.soft_values.of(list(prompts.values()), self.ledger)
        values = dict(zip(prompts, known, strict=True))
        if self.online:
            values = {name: self._estimate(name, value) for name, value in values.items()}
            self._remember(samples, batch)
        rows = [values[sample.prompt.problem.name] for sample in samples]
        return torch.tensor(rows, dtype=batch.rewards.dtype, device=batch.rewards.device)

    def _estimate(self, problem: str, fallback: float) -> float:
        recent = self._recent.get(problem)
        if not recent:
            return fallback
        rewards, weights = torch.tensor(list(recent), dtype=torch.float64).T
        value, ess = online_soft_value(rewards, weights, self.soft_values.beta)
        return float(value) if float(ess) >= self.min_ess else fallback

    def _remember(self, samples: Sequence[Sample], batch: Batch) -> None:
        log_weights = masked_sum(batch.ref_logp - batch.behaviour_logp, batch.mask).tolist()
        for sample, log_weight in zip(samples, log_weights, strict=True):
            if not sample.offline:
                pair = (sample.reward, log_weight)
                self._recent[sample.prompt.problem.name].append(pair)
