"""Policies: models with their weights' versions, adapters, shards and snapshots.

The room knows models. It must not know engines or learners.
"""

from experiments.policy.policy import Policy, WeightSource, copy_weights

__all__ = ["Policy", "WeightSource", "copy_weights"]
