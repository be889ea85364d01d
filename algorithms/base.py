"""The interface of an algorithm: it declares its needs, prepares targets and has a loss.

The trainer computes what `needs` names and leaves the batch's fields for other needs at None.
Behaviour and rollout log-probs are always there, since samples carry them.
`prepare` computes targets for the whole optimiser batch, without gradient. `loss` sees some of its
rows at a time; the value and the metrics that it returns are those rows' contributions. So adding
over micro-batches gives the same numbers and the same gradient, however the batch was split.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import Field, PositiveFloat

from algorithms.tensors import torch, turn_starts

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor

    # A tensor, or None if `Needs` does not name it. An algorithm reads what it has asked for, so
    # that a check for None at each use would say nothing.
    Provided = Tensor | Any

Share = Annotated[float, Field(ge=0, le=1)]
BelowOne = Annotated[float, Field(gt=0, lt=1)]


@dataclass
class Options:
    """First options of every algorithm; `conf/algo/NAME.yaml` states what differs from a class."""

    name: Annotated[str, Field(pattern=r"^[\w-]+$")]
    core: str
    learning_rate: PositiveFloat


@dataclass(frozen=True)
class Steps:
    """Where a response is cut into steps, and how many continuations estimate a cut's value."""

    cut: str  # "token", "line" or "unlikely" (experiments/rollout/prefixes.py)
    every: int  # only each so manieth of these cuts, the first one included
    continuations: int
    # instead of continuations the group is a tree: so many branches at each `every` tokens
    # (experiments/rollout/prefixes.py)
    branches: tuple[int, ...] = ()


@dataclass(frozen=True)
class Needs:
    """Inputs that the trainer must provide, and data that the algorithm may learn from."""

    reference: bool = False  # ref_logp: of the initial model, unless `train` lets it move
    # values: "separate" (own backbone), "shared" (a head on the policy), or "log_probs" (an own
    # copy of the policy, which begins as the initial one; the values are its tokens' log-probs)
    critic: str = "none"
    critic_warmup: int = 0  # number of first batches that train the critic alone
    critic_apart: bool = False  # critic_loss is the only term of the loss that trains the critic
    groups: int = 0  # smallest number of responses to a prompt, compared with each other; 0: none
    # reads behaviour_logp, so every response must have log-probs. "ratio": in a ratio, which
    # train.correction may correct; "own": the rollout policy's own, or in a ratio corrected already
    behaviour: str = ""
    off_policy: bool = False  # correct on responses of any policy, the data set's programs too
    share: str = ""  # what the algorithm mixes in: train's "offline_share" or "replay_share"
    policy: bool = False  # policy_logp: the current policy's log-probs before the update
    by_group: bool = False  # prepare treats each group on its own, and drops no row
    # reads the best reward, which is never exceeded. "bound": as the upper bound of rewards;
    # "success": as the mark of success, and takes any lower reward for a failure
    best_reward: str = ""
    # q0: the soft value, "monte_carlo" or "online", for initial_value_beta; or "quantile": the
    # share of the reference's rewards that are no better than the response's
    initial_value: str = "none"
    max_lag: int | None = None  # greatest staleness in optimiser steps; None: any
    entropy_graph: bool = False  # the loss differentiates through the entropy
    copies: tuple[str, ...] = ()  # names of earlier weights, which the hooks below keep
    copy_of: str = ""  # folder whose weights they have in place of the initial ones
    step_values: Steps | None = None  # step_values, step_errors: by continuations of the responses


@dataclass(frozen=True)
class Batch:
    """Rows of one optimiser batch; the rows of a group (one prompt) are adjacent."""

    # (batch, time) bool, true on the tokens that the policy generated, EOS included. Between the
    # answers of a conversation stand observations, false
    mask: Tensor
    rewards: Tensor  # (batch,) one terminal reward for each response
    keep: Tensor  # (batch,) bool: the rows that the loss averages over
    online: Tensor  # (batch,) bool: came with rollout log-probs; false: an offline program
    group_size: int
    batches: int = 0  # number of batches of the run before this one
    fresh: Provided = None  # (batch,) bool: online and not replayed
    accepted: Provided = None  # (batch,) bool: the judge's verdict, which a shaped reward may hide
    # (batch, time), the ratio's denominator: of the behaviour policy μ, the weights that generated
    # the response; with train.correction of the learner's at the start of the update
    behaviour_logp: Provided = None
    correction: Tensor | None = None  # (batch, time), weights of the ratio's terms
    rollout_logp: Provided = None  # (batch, time), of μ, corrected or not; 0 where unknown
    ref_logp: Provided = None  # (batch, time)
    policy_logp: Provided = None  # (batch, time), before the update
    earlier_logp: Provided = None  # (batch, time), of earlier weights, set by the hooks
    start_logp: Provided = None  # (batch, time), before the batch's first update, set by the hooks
    values: Provided = None  # (batch, time), the critic's before the update
    # (batch, time), of the state before each token: its Monte-Carlo value under the policy that
    # generated the batch, and the value's standard error; NaN where the response is not cut
    step_values: Provided = None
    step_errors: Provided = None
    q0: Provided = None  # (batch,) by needs.initial_value: the prompt's soft value or a quantile
    advantages: Provided = None  # (batch, time), set by prepare
    returns: Provided = None  # (batch, time), set by prepare
    weights: Provided = None  # (batch, time), of the loss's terms, set by prepare
    targets: Provided = None  # (batch,), set by prepare
    sequence_share: float = 1.0  # these rows' share of the whole batch's responses
    token_share: float = 1.0  # these rows' share of the whole batch's response tokens
    turn_share: float = 1.0  # these rows' share of the whole batch's answers

    @property
    def turn_starts(self) -> Tensor:
        """(batch, time) bool: the first token of each answer, which an observation precedes."""
        return turn_starts(self.mask)

    @property
    def kept_mask(self) -> Tensor:
        """(batch, time) bool: the tokens of kept rows."""
        return self.mask & self.keep.unsqueeze(-1)

    def rows(self, index: Tensor) -> Batch:
        """The rows of `index` (n,), with their shares of this batch."""
        selected: dict[str, Any] = {
            field.name: value[index]
            for field in fields(self)
            if isinstance(value := getattr(self, field.name), torch.Tensor)
        }
        part = replace(self, **selected)
        return replace(
            part,
            sequence_share=self.sequence_share * len(index) / len(self.mask),
            token_share=self.token_share * int(part.mask.sum()) / max(1, int(self.mask.sum())),
            turn_share=self.turn_share
            * int(part.turn_starts.sum())
            / max(1, int(self.turn_starts.sum())),
        )

    def only_kept(self) -> Batch:
        """The rows of `keep` as a whole batch: dropped rows are in no denominator."""
        return self.rows(self.keep.nonzero().squeeze(-1)).as_whole()

    def as_whole(self) -> Batch:
        """These rows as a whole batch."""
        return replace(self, sequence_share=1.0, token_share=1.0, turn_share=1.0)


@dataclass(frozen=True)
class PolicyOutput:
    """Output of the model in training for some rows, with gradient; all (batch, time)."""

    logp: Tensor
    entropy: Tensor
    values: Provided = None  # the critic's


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
        """Compute targets for the whole optimiser batch, without gradient, before it is split."""
        return batch

    # Hooks for objectives that read earlier weights of the policy. The learner holds
    # `needs.copies`, which begin as the initial policy. `logp(name)` are the log-probs of the
    # batch's tokens under a copy, or under the present weights by the name "policy", (batch, time).

    def before_batch(
        self, batch: Batch, logp: Callable[[str], Tensor], keep: Callable[[str], None]
    ) -> Batch:
        """Add log-probs before the batch's first step; `keep(name)` copies the present weights."""
        return batch

    def before_step(self, batch: Batch, logp: Callable[[str], Tensor]) -> Batch:
        """Add log-probs before a step on these rows."""
        return batch

    def after_step(self, average: Callable[[str, float], None]) -> None:  # noqa: B027
        """`average(name, decay)` takes the present weights into a copy's moving average."""

    @property
    def replay_until(self) -> int | None:
        """The last batch with replayed responses; None: no limit."""
        return None

    @property
    def initial_value_beta(self) -> float:
        """β of q0 = β log E exp(r/β), with `needs.initial_value`."""
        raise NotImplementedError(f"{type(self).__name__} reads no initial value")

    def critic_loss(self, values: Tensor, batch: Batch) -> Tensor:
        """The part of `loss` that trains the critic, from its values (batch, time).

        Required with `needs.critic_apart`. It depends neither on the policy nor on what other rows
        decide, and takes rows before `prepare` as well. So a critic of its own is trained before
        the policy, in the same pass that computes its old values, and `loss` receives those.
        """
        raise NotImplementedError(f"{type(self).__name__}: critic_apart needs a critic_loss")

    def values_and_outcomes(self, batch: Batch) -> tuple[Tensor, Tensor] | None:
        """The critic's values before the update, and what they predict, (n,) both.

        From a prepared batch; None without a critic. Outcomes hold no value of the critic's: a
        return that does would be explained by itself.
        """
        return None

    @abstractmethod
    def loss(self, policy: PolicyOutput, batch: Batch) -> tuple[Tensor, dict[str, Tensor]]:
        """These rows' contribution to the loss and to the metrics (scalars that add up)."""
