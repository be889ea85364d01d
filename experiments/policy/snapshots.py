"""Earlier weights of a policy: snapshots for batches to come, and copies that a loss reads.

Pending snapshots (`train.lag`; checkpoints hold them too) are in host memory, whole or one rank's
shards. A learner on N ranks with an engine each would otherwise hold the weights N times for every
batch of lag. Of an adapted policy a snapshot holds the adapter.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.distributed.tensor import DTensor

from experiments.policy.lora import trained
from experiments.policy.policy import Policy, as_shard, whole


@dataclass(frozen=True)
class PlainWeights:
    """Whole weights of one version, without a model (see `WeightSource`)."""

    tensors: Sequence[Tensor]  # as `own_tensors` of their policy
    version: int
    adapted: Policy | None = None  # the policy whose adapter the tensors are
    plain: Sequence[Tensor] | None = None  # what the adapter made of a base that is sharded

    @classmethod
    def restored(cls, policy: Policy, tensors: Sequence[Tensor], version: int) -> PlainWeights:
        """Return the weights of a policy with these `own_tensors`, which are whole.

        A collective of all ranks if the policy is sharded.
        """
        if policy.adapter is None:
            return cls(tensors, version)
        plain = None
        if policy.sharded:
            plain = [_to_host(weight) for _, weight in policy.named_weights(adapter=tensors)]
        return cls(tensors, version, policy, plain)

    @classmethod
    def of(cls, policy: Policy) -> PlainWeights:
        """Copy the policy's present weights."""
        tensors = [_to_host(whole(tensor.detach())) for tensor in policy.own_tensors()]
        return cls.restored(policy, tensors, policy.version)

    def plain_weights(self) -> Iterator[Tensor]:
        if self.adapted is None or self.plain is not None:
            return iter(self.plain or self.tensors)
        return (weight for _, weight in self.adapted.named_weights(adapter=self.tensors))

    def own_tensors(self) -> Sequence[Tensor]:
        return self.tensors

    def whole(self) -> PlainWeights:
        """Return the weights for `copy_weights`."""
        return self

    def state(self, keep: bool = True) -> Sequence[Tensor | None]:
        """Return the tensors from which they are restored."""
        return self.tensors


class ShardedSnapshot:
    """This rank's shards of a policy's weights at one version.

    `whole` and `state` are collectives of all ranks.
    """

    def __init__(self, policy: Policy, tensors: Sequence[Tensor], version: int) -> None:
        """`tensors`: whole `own_tensors`, or shards."""
        self._policy, self.version = policy, version
        self._like = [tensor for tensor in policy.own_tensors() if isinstance(tensor, DTensor)]
        pairs = zip(tensors, self._like, strict=True)
        shards = (t if isinstance(t, DTensor) else as_shard(t, like) for t, like in pairs)
        self._local = [_to_host(s.to_local()) for s in shards if isinstance(s, DTensor)]

    @classmethod
    def of(cls, policy: Policy) -> ShardedSnapshot:
        """Copy this rank's shards of the policy's present weights."""
        return cls(policy, policy.own_tensors(), policy.version)

    def whole(self) -> PlainWeights:
        whole = [full.cpu() for full in self._full()]
        return PlainWeights.restored(self._policy, whole, self.version)

    def state(self, keep: bool = True) -> Sequence[Tensor | None]:
        """Return whole tensors in host memory; on a rank without `keep`, None for each."""
        return [full.cpu() if keep else None for full in self._full()]

    def _full(self) -> Iterator[Tensor]:
        for local, like in zip(self._local, self._like, strict=True):
            yield DTensor.from_local(
                local.to(like.device),
                like.device_mesh,
                like.placements,
                run_check=False,
                shape=like.shape,
                stride=like.stride(),
            ).full_tensor()


def _to_host(tensor: Tensor) -> Tensor:
    return tensor.detach().to("cpu", copy=True)


class PastPolicies:
    """Copies of the initial policy, which take the present weights in when they are told to.

    The algorithm names them (`Needs.copies`); "reference" is also that of `train.reference_every`.
    """

    def __init__(
        self, policy: Policy, copy_policy: Callable[[str], Policy], names: Iterable[str]
    ) -> None:
        """`copy_policy` returns the first weights of a name, sharded like the trained `policy`."""
        self.policy = policy
        self.policies = {name: copy_policy(name) for name in names}
        self.averages: dict[str, MovingAverage] = {}

    @torch.no_grad()
    def keep(self, name: str) -> None:
        """Copy the policy's weights, or its adapter; each rank copies its own shards."""
        copied = self.policies[name].own_tensors()
        for own, new in zip(copied, self.policy.own_tensors(), strict=True):
            own.copy_(new)

    def average(self, name: str, decay: float) -> None:
        """Take the policy's weights into the moving average that starts at this copy."""
        self._average(name).follow(self.policy, decay)

    def _average(self, name: str) -> MovingAverage:
        if name not in self.averages:
            self.averages[name] = MovingAverage(self.policies[name], self.policy)
        return self.averages[name]

    def state_dict(self) -> dict[str, Any]:
        """Return the weights by name; the tensors are not copied."""
        return {
            "copies": {name: policy.own_tensors() for name, policy in self.policies.items()},
            "averages": {name: average.state_dict() for name, average in self.averages.items()},
        }

    @torch.no_grad()
    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore what `state_dict` returned."""
        for name, policy in self.policies.items():
            for own, saved in zip(policy.own_tensors(), state["copies"][name], strict=True):
                own.copy_(as_shard(saved, own))
        for name, saved in state["averages"].items():
            self._average(name).load_state_dict(saved)


class MovingAverage:
    """An exponentially weighted moving average of a policy's weights (PPO-EWMA's proximal policy).

    It starts at the weights of a copy, which holds it rounded. After n steps, step i has
    weight decay^(n − i), and the start has that of a step 0 (as in the code of Hilton et al., arXiv
    2110.00641). It is kept in float32, because bfloat16 loses a tenth of a small step.
    """

    def __init__(self, copied: Policy, policy: Policy) -> None:
        """`copied`: a copy of `policy` at its initial weights, which will hold the average."""
        self.weight = 1.0
        moving = {name for name, p in policy.model.named_parameters() if p.requires_grad}
        self.rounded = [p for name, p in copied.model.named_parameters() if name in moving]
        self.exact = [p.detach().float() for p in self.rounded]  # a float32 weight is itself

    @torch.no_grad()
    def follow(self, policy: Policy, decay: float) -> None:
        """Take in the policy's weights; to be called after each of its steps."""
        self.weight = decay * self.weight + 1
        new_weights = trained(policy.model)
        for exact, rounded, new in zip(self.exact, self.rounded, new_weights, strict=True):
            exact.lerp_(new.float(), 1 / self.weight)
            rounded.copy_(exact)

    def state_dict(self) -> dict[str, Any]:
        """Return the average and its weight; the tensors are not copied."""
        return {"held": self.exact, "weight": self.weight}

    @torch.no_grad()
    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore what `state_dict` returned."""
        self.weight = state["weight"]
        for exact, rounded, saved in zip(self.exact, self.rounded, state["held"], strict=True):
            exact.copy_(as_shard(saved, exact))
            rounded.copy_(exact)
