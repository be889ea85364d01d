"""What an algorithm is: it says what it needs, prepares targets without gradient, and has a loss.

The trainer provides exactly what `needs` names and leaves the other fields of the batch at None.
A loss sees some rows of the optimiser batch at a time; everything it returns, value and metrics, is
those rows' contribution to the whole batch's, so that adding over micro-batches gives the same
numbers and the same gradient however the batch was cut.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Annotated

from pydantic import Field, PositiveFloat

from algorithms import lazy_torch as torch

if TYPE_CHECKING:
    from torch import Tensor


@dataclass
class Options:
    """What every algorithm's options begin with; `conf/algo/NAME.yaml` gives all of them."""

    name: Annotated[str, Field(pattern=r"^[\w-]+$")] = ""  # of its runs' folders and curves
    core: str = ""  # the class that computes it: module.Class
    learning_rate: PositiveFloat = 3e-4


@dataclass(frozen=True)
class Needs:
    """What the trainer must provide."""

    reference: bool = False  # ref_logp: log-probs of the frozen initial model
    critic: str = "none"  # values: "separate" (own backbone) or "shared" (a head on the policy)
    critic_warmup: int = 0  # the first batches train the critic alone
    critic_apart: bool = False  # critic_loss is all that the loss tells it
    groups: bool = False  # several responses to each prompt, compared with each other
    least_group: int = 2  # groups: at least so many
    behaviour: bool = False  # behaviour_logp of every token
    anchored: bool = False  # behaviour_logp is in no ratio that could be corrected
    off_policy: bool = False  # learns rightly from responses of any writer, the data set's too
    share: str = ""  # of train: "offline_share" or "replay_share", what it is made to mix in
    policy: bool = False  # policy_logp: the current policy's log-probs before the update
    by_group: bool = False  # prepare takes each whole group for itself, and drops no row
    best_reward: bool = False  # the best reward of the task is a success, and there is none above
    initial_value: str = "none"  # q0: "monte_carlo" or "online"
    initial_value_beta: float = 0.0  # q0 is β log E exp(r/β) for this β
    max_lag: int | None = None  # optimiser steps that the writer may lie behind; None: any number
    average: float | None = None  # proximal_logp: of weights averaged over steps with this decay
    start: bool = False  # start_logp: the policy's log-probs before the batch's first step
    precedent: int | None = None  # precedent_logp: a batch before, once so many batches are over
    reincarnation: int | None = None  # after so many batches it is the reference of the rest
    replay_until: int | None = None  # the last batch with replayed responses
    entropy_graph: bool = False  # the loss differentiates through the entropy


@dataclass(frozen=True)
class Batch:
    """Rows of one optimiser batch; the rows of a group (one prompt) are adjacent."""

    mask: Tensor  # (batch, time) bool, true on response tokens including EOS
    rewards: Tensor  # (batch,) one terminal reward for each response
    keep: Tensor  # (batch,) bool: the rows that the loss is over
    online: Tensor  # (batch,) bool: written by a policy that told its log-probs
    group_size: int
    batches: int = 0  # those of the run before this one
    fresh: Tensor | None = None  # (batch,) bool: online and not replayed
    # (batch, time), what the ratio is against: the policy that wrote; corrected, the proximal one
    behaviour_logp: Tensor | None = None
    correction: Tensor | None = None  # (batch, time), weights of the ratio's terms
    writer_logp: Tensor | None = None  # (batch, time), of the policy that wrote; 0 where unknown
    ref_logp: Tensor | None = None  # (batch, time)
    proximal_logp: Tensor | None = None  # (batch, time), of the averaged weights before the step
    policy_logp: Tensor | None = None  # (batch, time), before the update
    start_logp: Tensor | None = None  # (batch, time), before the batch's first update
    precedent_logp: Tensor | None = None  # (batch, time), before the last batch's first update
    values: Tensor | None = None  # (batch, time), the critic's before the update
    q0: Tensor | None = None  # (batch,) soft value of the prompt under the reference
    advantages: Tensor | None = None  # (batch, time), set by prepare
    returns: Tensor | None = None  # (batch, time), set by prepare
    weights: Tensor | None = None  # (batch, time), of the loss's terms, set by prepare
    targets: Tensor | None = None  # (batch,), set by prepare
    sequence_share: float = 1.0  # these rows' share of the whole batch's responses
    token_share: float = 1.0  # these rows' share of the whole batch's response tokens

    def rows(self, index: Tensor) -> Batch:
        """The rows of `index` (n,), with their shares of this batch."""
        cut = {
            field.name: value[index]
            for field in fields(self)
            if isinstance(value := getattr(self, field.name), torch.Tensor)
        }
        part = replace(self, **cut)
        return replace(
            part,
            sequence_share=self.sequence_share * len(index) / len(self.mask),
            token_share=self.token_share * int(part.mask.sum()) / max(1, int(self.mask.sum())),
        )

    def only_kept(self) -> Batch:
        """The rows of `keep`, as a whole batch: what was dropped is in no denominator."""
        kept = self.rows(self.keep.nonzero().squeeze(-1))
        return replace(kept, sequence_share=1.0, token_share=1.0)


@dataclass(frozen=True)
class PolicyOutput:
    """What the model being trained says of some rows, with gradient; all (batch, time)."""

    logp: Tensor
    entropy: Tensor
    values: Tensor | None = None


class Algorithm(ABC):
    """One algorithm. `Config` is the dataclass of its options; the defaults are the vetted ones."""

    Config: type[Options]

    def __init__(self, config: Options, reward_high: float) -> None:
        self.config = config
        self.reward_high = reward_high  # the best possible reward of the task

    @property
    @abstractmethod
    def needs(self) -> Needs: ...

    def prepare(self, batch: Batch) -> Batch:
        """Targets for the whole optimiser batch, without gradient, before it is cut."""
        return batch

    def critic_loss(self, values: Tensor, batch: Batch) -> Tensor:
        """What `loss` contains of a critic's values, (batch, time), with `needs.critic_apart`.

        It reads neither the policy nor what other rows decide. So a critic of its own learns before
        the policy, from the pass that tells its old values, and `loss` is given them as they are.
        """
        raise NotImplementedError(f"{type(self).__name__}: critic_apart needs a critic_loss")

    @abstractmethod
    def loss(self, policy: PolicyOutput, batch: Batch) -> tuple[Tensor, dict[str, Tensor]]:
        """These rows' contribution to the loss and to the metrics (scalars that add up)."""
