"""Policies: models with their weights' versions, adapters, shards and snapshots.

The room knows models. It must not know who samples from them or trains them.
"""

from experiments.policy.policy import Policy, WeightSource, copy_weights

__all__ = ["Policy", "WeightSource", "copy_weights"]
