"""PPO (Schulman et al., arXiv 1707.06347) as used for language models (1909.08593, 2203.02155).

A critic predicts the return at every token. Advantages are by GAE (1506.02438), whitened over the
whole batch. The ratio of the clipped surrogate is against `behaviour_logp`: the rollout policy, or,
with `train.correction`, the policy at the start of the update. The KL to the reference is part of
the reward, token by token, and not of the loss. The clip only acts with several steps per batch
(`train.minibatches`, `train.epochs`) or on stale responses (`train.sync_every`, `train.lag`).
Values, advantages and their whitening are those of the whole batch before the first step.

Two controls show what the critic adds. `critic=none` sets V = 0: the advantage of a token is the
(γλ)-weighted sum of the rewards from it on, and there is no value loss. `critic_warmup=N` first
fits the critic to the responses of the initial policy, for N batches, which the budget counts as
all others.

In a conversation of several answers, tokens of observations are masked out and stepped over. With
`value_unit=turn` an answer is one action, as in RLEF (2410.02089, section 2.2): one value is
predicted before its first token, its reward is the sum of its tokens' rewards, and all its tokens
have its advantage. γ and λ then count answers. `kl_mean` divides the penalty by the number of the
answer's tokens: RLEF takes the mean, because a sum favours short answers.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal, Protocol

from pydantic import NonNegativeFloat, NonNegativeInt, PositiveFloat

from algorithms.base import Algorithm, Batch, BelowOne, Needs, Options, PolicyOutput, Share
from algorithms.tensors import (
    Tensor,
    clip_share,
    clipped_terms,
    log_ratio,
    masked_mean,
    masked_whiten,
    torch,
    turn_starts,
)

if TYPE_CHECKING:
    from collections.abc import Callable

MIN_CRITIC_RATE = 1e-5


@dataclass
class CriticRateOptions(Options):
    """Learning rate of a critic."""

    critic_learning_rate: PositiveFloat | None

    @property
    def critic_rate(self) -> float:
        """The critic's learning rate, resolved."""
        if self.critic_learning_rate is not None:
            return self.critic_learning_rate
        return max(self.learning_rate, MIN_CRITIC_RATE)


@dataclass
class CriticOptions(CriticRateOptions):
    """Placement and learning rate of a critic."""

    critic: Literal["separate", "shared"]


@dataclass
class ValueOptions(CriticRateOptions):
    """The critic, its training and its part of the loss."""

    critic: Literal["separate", "shared", "none"]
    critic_warmup: NonNegativeInt
    value_coef: NonNegativeFloat
    value_clip: PositiveFloat

    def __post_init__(self) -> None:
        if self.critic == "none" and self.critic_learning_rate is not None:
            raise ValueError(
                f"critic=none with critic_learning_rate={self.critic_learning_rate:g}: there is no "
                "critic to train; leave the rate out, or use critic=separate"
            )


@dataclass
class PPOConfig(ValueOptions):
    """Options of PPO."""

    clip_low: BelowOne
    clip_high: PositiveFloat
    gamma: Share
    lam: Share
    kl_coef: NonNegativeFloat
    entropy_coef: NonNegativeFloat
    kl_mean: bool
    value_unit: Literal["token", "turn"]


def gae(
    rewards: Tensor,
    values: Tensor,
    mask: Tensor,
    *,
    gamma: float = 1.0,
    lam: float | Tensor = 1.0,
) -> tuple[Tensor, Tensor]:
    """Generalised advantage estimation (1506.02438, eq. 16) over response tokens only.

    rewards, values (batch, time): values[t] is that of the state before token t; lam may be one for
    each response, (batch,). Masked-out positions are stepped over, wherever they stand; after the
    last token the value is 0.
    Returns (advantages, returns), zero where masked out; returns = advantages + values.
    """
    advantages = torch.zeros_like(values)
    next_value = torch.zeros_like(values[:, 0])  # value of the next response token's state
    running = torch.zeros_like(next_value)
    rewards, values = rewards.masked_fill(~mask, 0.0), values.masked_fill(~mask, 0.0)
    for t in reversed(range(values.shape[1])):
        live = mask[:, t]
        delta = rewards[:, t] + gamma * next_value - values[:, t]
        running = torch.where(live, delta + gamma * lam * running, running)
        next_value = torch.where(live, values[:, t], next_value)
        advantages[:, t] = running.masked_fill(~live, 0.0)
    return advantages, advantages + values


def turn_gae(
    rewards: Tensor,
    values: Tensor,
    mask: Tensor,
    *,
    gamma: float = 1.0,
    lam: float = 1.0,
) -> tuple[Tensor, Tensor]:
    """GAE whose actions are answers: `step_gae` of steps that begin with each answer."""
    return step_gae(rewards, values, mask, turn_starts(mask), gamma=gamma, lam=lam)


def step_gae(
    rewards: Tensor,
    values: Tensor,
    mask: Tensor,
    starts: Tensor,
    *,
    gamma: float = 1.0,
    lam: float = 1.0,
) -> tuple[Tensor, Tensor]:
    """GAE whose actions are steps of several tokens: as `gae`, with values[t] read at `starts`.

    `starts` (batch, time) bool: the first token of each step.
    Returns (the step's advantage at each of its tokens, its return at its first token); zero
    elsewhere, and before the first step.
    """
    first = first_of_step(starts)
    summed = torch.zeros_like(rewards).scatter_add(-1, first, rewards.masked_fill(~mask, 0.0))
    advantages, returns = gae(summed, values, starts, gamma=gamma, lam=lam)
    return advantages.gather(-1, first).masked_fill(~mask, 0.0), returns


def first_of_step(starts: Tensor) -> Tensor:
    """The position of the last start up to each token, (batch, time); 0 before the first one."""
    positions = torch.arange(starts.shape[1], device=starts.device).expand_as(starts)
    return torch.where(starts, positions, 0).cummax(-1).values


def answer_lengths(mask: Tensor) -> Tensor:
    """The number of tokens of each token's answer, (batch, time); 1 where masked out."""
    first = first_of_step(turn_starts(mask))
    counted = torch.zeros_like(first).scatter_add(-1, first, mask.long())
    return counted.gather(-1, first).masked_fill(~mask, 1)


def clipped_surrogate(
    logp: Tensor,
    old_logp: Tensor,
    advantages: Tensor,
    mask: Tensor,
    *,
    clip_low: float = 0.2,
    clip_high: float = 0.2,
    weights: Tensor | None = None,
) -> Tensor:
    """Mean over tokens of −w min(ρ A, clip(ρ, 1 − ε_low, 1 + ε_high) A) → scalar (eq. 7)."""
    terms = clipped_terms(logp, old_logp, advantages, mask, clip_low, clip_high, weights)
    return masked_mean(terms, mask)


class ClipBounds(Protocol):
    """Options with bounds of the ratio."""

    clip_low: float
    clip_high: float


def surrogate_and_clip_share(
    logp: Tensor, batch: Batch, bounds: ClipBounds
) -> tuple[Tensor, Tensor]:
    """The clipped surrogate of a prepared batch, and the share of tokens that the clip cuts."""
    given = (batch.behaviour_logp, batch.advantages, batch.mask)
    low, high = bounds.clip_low, bounds.clip_high
    surrogate = clipped_surrogate(
        logp, *given, clip_low=low, clip_high=high, weights=batch.correction
    )
    return surrogate, clip_share(logp.detach(), *given, low, high)


def value_loss(
    values: Tensor,
    old_values: Tensor,
    returns: Tensor,
    mask: Tensor,
    *,
    clip: float = 0.2,
) -> Tensor:
    """½ max((V − R)², (clip(V, V_old ± ε_v) − R)²), mean over tokens → scalar."""
    values, old_values, returns = (x.masked_fill(~mask, 0.0) for x in (values, old_values, returns))
    bounded = old_values + (values - old_values).clamp(-clip, clip)
    error = torch.maximum((values - returns).square(), (bounded - returns).square())
    return 0.5 * masked_mean(error, mask)


def terminal_rewards(rewards: Tensor, mask: Tensor) -> Tensor:
    """Each response's reward on its last token: (batch,), (batch, time) → (batch, time)."""
    positions = torch.arange(mask.shape[1], device=mask.device)
    last = torch.where(mask, positions, -1).amax(-1, keepdim=True)
    return torch.where(positions == last, rewards.unsqueeze(-1), 0.0)


def penalised_rewards(
    batch: Batch,
    kl_coef: float,
    kl_mean: bool = False,
    added: Callable[[Batch], Tensor] | None = None,
) -> Tensor:
    """Token rewards: the response's on its last token, less kl_coef (log μ − log π_ref) on each.

    With `kl_mean` each penalty is divided by the number of its answer's tokens. `added`: further
    rewards, (batch, time).
    With `train.correction`, `behaviour_logp` is that of the policy at the start of the update
    instead of μ, in the penalty as in the ratio.
    """
    rewards = terminal_rewards(batch.rewards, batch.mask)
    if kl_coef > 0:
        penalty = log_ratio(batch.behaviour_logp, batch.ref_logp, batch.mask)
        rewards = rewards - kl_coef * (penalty / answer_lengths(batch.mask) if kl_mean else penalty)
    return rewards if added is None else rewards + added(batch)


def values_or_zeros(batch: Batch, like: Tensor) -> Tensor:
    """The critic's values (batch, time); without a critic V = 0, shaped as `like`."""
    return torch.zeros_like(like) if batch.values is None else batch.values


def with_advantages(
    batch: Batch,
    *,
    gamma: float,
    lam: float,
    kl_coef: float,
    kl_mean: bool = False,
    by_turn: bool = False,
    added: Callable[[Batch], Tensor] | None = None,
) -> Batch:
    """The batch with PPO's returns, and its advantages whitened over the rows of the loss.

    So a dropped response moves neither mean nor scale. `by_turn`: of answers, not of tokens.
    `added`: further token rewards, (batch, time).
    """
    rewards = penalised_rewards(batch, kl_coef, kl_mean, added)
    values = values_or_zeros(batch, rewards)
    estimate = turn_gae if by_turn else gae
    advantages, returns = estimate(rewards, values, batch.mask, gamma=gamma, lam=lam)
    whitened = masked_whiten(advantages, batch.kept_mask)
    return replace(batch, advantages=whitened, returns=returns)


def monte_carlo_returns(
    batch: Batch,
    *,
    gamma: float,
    kl_coef: float,
    kl_mean: bool = False,
    by_turn: bool = False,
    added: Callable[[Batch], Tensor] | None = None,
) -> Tensor:
    """The penalised rewards that follow each token, its own included → (batch, time).

    `by_turn`: those from each answer on, at its first token. `added`: further token rewards.
    """
    rewards = penalised_rewards(batch, kl_coef, kl_mean, added)
    estimate = turn_gae if by_turn else gae
    return estimate(rewards, torch.zeros_like(rewards), batch.mask, gamma=gamma, lam=1.0)[1]


class ValueObjective(Algorithm):
    """An objective with PPO's critic, trained apart from the policy, or with `critic=none`."""

    config: ValueOptions

    def value_needs(self, **others: Any) -> Needs:
        """The needs of the critic and, beside them, `others`."""
        c = self.config
        return Needs(critic=c.critic, critic_apart=True, critic_warmup=c.critic_warmup, **others)

    def states(self, batch: Batch) -> Tensor:
        """(batch, time) bool: the tokens before which a value is predicted."""
        return batch.mask

    def share(self, batch: Batch) -> float:
        """These rows' share of the whole batch's predicted values."""
        return batch.token_share

    def relative_share(self, batch: Batch) -> float:
        """A factor for means over states in a loss that adds up by shares of tokens."""
        share = self.share(batch)
        return 1.0 if share == batch.token_share else share / batch.token_share

    def value_loss(self, values: Tensor, batch: Batch) -> Tensor:
        """PPO's value loss of these rows → scalar, without its coefficient."""
        clip = self.config.value_clip
        return value_loss(values, batch.values, batch.returns, self.states(batch), clip=clip)

    def with_value_loss(
        self, loss: Tensor, values: Tensor | Any, batch: Batch
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """(`loss` with the weighted value loss, its metrics); without a critic `loss` itself."""
        if self.config.critic == "none":
            return loss, {}
        value = self.value_loss(values, batch) * self.relative_share(batch)
        return loss + self.config.value_coef * value, {"ppo/value_loss": value.detach()}

    def outcomes(self, batch: Batch) -> Tensor:
        """Returns without the critic's values in them, (batch, time)."""
        return batch.returns

    def values_and_outcomes(self, batch: Batch) -> tuple[Tensor, Tensor] | None:
        """Of all states that have a value."""
        if batch.values is None:
            return None
        states = self.states(batch)
        return batch.values[states], self.outcomes(batch)[states]

    def critic_loss(self, values: Tensor, batch: Batch) -> Tensor:
        # A return depends on its own row alone, whitening does not: a critic can learn row by row.
        batch = self.prepare(batch) if batch.returns is None else batch
        return self.config.value_coef * self.value_loss(values, batch) * self.share(batch)


class PPO(ValueObjective):
    """Needs behaviour log-probs, a critic unless it is none, the reference unless kl_coef is 0."""

    Config: type[Options] = PPOConfig
    config: PPOConfig

    @property
    def needs(self) -> Needs:
        return self.value_needs(
            reference=self.config.kl_coef > 0,
            behaviour="ratio",
            entropy_graph=self.config.entropy_coef != 0,
        )

    @property
    def by_turn(self) -> bool:
        return self.config.value_unit == "turn"

    def states(self, batch: Batch) -> Tensor:
        return batch.turn_starts if self.by_turn else batch.mask

    def share(self, batch: Batch) -> float:
        return batch.turn_share if self.by_turn else batch.token_share

    def prepare(self, batch: Batch) -> Batch:
        return with_advantages(batch, lam=self.config.lam, **self._return_options)

    def outcomes(self, batch: Batch) -> Tensor:
        return monte_carlo_returns(batch, **self._return_options)

    @property
    def _return_options(self) -> dict[str, Any]:
        c = self.config
        of_kl = {"kl_coef": c.kl_coef, "kl_mean": c.kl_mean}
        return {"gamma": c.gamma, **of_kl, "by_turn": self.by_turn}

    def loss(self, policy: PolicyOutput, batch: Batch) -> tuple[Tensor, dict[str, Tensor]]:
        c, share, mask = self.config, batch.token_share, batch.mask
        surrogate, cut = surrogate_and_clip_share(policy.logp, batch, c)
        loss, of_value = self.with_value_loss(surrogate, policy.values, batch)
        if of_value:
            mean = masked_mean(batch.values, self.states(batch))
            of_value["ppo/value_mean"] = mean * self.relative_share(batch)
        if c.entropy_coef:
            loss = loss - c.entropy_coef * masked_mean(policy.entropy, mask)
        metrics = {"ppo/surrogate": surrogate.detach(), **of_value, "clip_share": cut}
        return loss * share, {name: metric * share for name, metric in metrics.items()}
