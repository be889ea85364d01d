"""Proposes the values of one trial, from the seed and the trial's number alone.

Each key has a random stream of its own. So a value that was missing after a kill is drawn as it
would have been, and a key's random values are the same for every arm, whatever else it tunes.
"""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING, Any

from optuna.samplers import BaseSampler, RandomSampler, TPESampler

if TYPE_CHECKING:
    from optuna.distributions import BaseDistribution
    from optuna.study import Study
    from optuna.trial import FrozenTrial


class TrialSampler(BaseSampler):
    """Random for the first `start` trials by number, TPE for the others.

    TPE's own start counts finished trials: one that failed, or still runs, would make a later one
    random.
    """

    def __init__(self, seed: int, number: int, start: int) -> None:
        self.seed, self.number, self.is_random = seed, number, number < start
        self.joint = self._sampler("")  # of the keys that TPE draws together

    def infer_relative_search_space(
        self, study: Study, trial: FrozenTrial
    ) -> dict[str, BaseDistribution]:
        return self.joint.infer_relative_search_space(study, trial)

    def sample_relative(
        self, study: Study, trial: FrozenTrial, search_space: dict[str, BaseDistribution]
    ) -> dict[str, Any]:
        return self.joint.sample_relative(study, trial, search_space)

    def sample_independent(
        self,
        study: Study,
        trial: FrozenTrial,
        param_name: str,
        param_distribution: BaseDistribution,
    ) -> Any:
        one = self._sampler(param_name)
        return one.sample_independent(study, trial, param_name, param_distribution)

    def _sampler(self, key: str) -> BaseSampler:
        seed = zlib.crc32(f"{self.seed} {self.number} {key}".encode())
        if self.is_random:
            return RandomSampler(seed)
        # without any finished trial there is nothing to learn from: random
        return TPESampler(seed=seed, n_startup_trials=1, constant_liar=True)
