"""SPO: Soft Policy Optimization (Cohen, Zhang, Zheng, Tang, Munos, Synnaeve; arXiv 2503.05453).

Not Single-stream PO (2509.13232), Segment PO (2505.23564) or Simple PO (2401.16025).

The optimum of E_π[r] − β KL(π ‖ π_ref) is π*(a_t) = π_ref(a_t) exp((Q_t − Q_{t−1})/β) with soft
values Q. SPO reverses this: the policy defines Q_t = Q̂_0(x) + Σ_{t'≤t} β log(π_θ/π_ref). So the
soft Bellman equations hold for every θ, and only the terminal condition Q_T = r(x, y) is left to
learn. It holds for every response y of any policy: no critic, no importance ratio, no clip.

SPO is a family. The paper's loss, β, exponent and reward scale could not be read, so a result names
`loss`, `beta`, `exponent`, the range of rewards (`task.reward`) and `q0`: they decide what is
learnt. loss=cross_entropy reads exp((Q − r_max)/β) as a probability, so it needs a soft value:
q0=monte_carlo (the paper's, from responses of the reference) or group_soft (from the group, by its
writer's log-probs; it can follow a reference that moves). Where π_θ = π_ref, failures then have
half of the slope at any small β. With binary rewards and β below 0.2, β nearly cancels: the target
of a failure, e^{−1/β}, is 0. q0=group, the mean of r − βS, is the value of the squared loss, which
starts with it as RLOO, and no soft value. The cross-entropy refuses it: at a small β failures would
have next to no slope, and what is left is maximum likelihood of the run's own accepted responses.
docs/guide/algorithms.md has the shares where π_θ = π_ref.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Annotated, Literal, get_args

from pydantic import Field, PositiveFloat, PositiveInt

from algorithms.base import Algorithm, Batch, Needs, Options, PolicyOutput
from algorithms.tensors import Tensor, group_log_mean_exp, group_mean, masked_sum, torch

LossKind = Literal["cross_entropy", "squared", "advantage"]
Exponent = Literal["q_over_beta", "q"]


@dataclass
class SPOConfig(Options):
    """Options of SPO."""

    beta: PositiveFloat
    loss: LossKind
    exponent: Exponent
    slope_bound: Annotated[float, Field(ge=1)]
    slope_width: PositiveFloat
    huber_width: PositiveFloat
    q0: Literal["monte_carlo", "group_soft", "group", "online"]
    q0_samples: PositiveInt

    def __post_init__(self) -> None:
        if self.loss == "cross_entropy" and self.q0 == "group":
            raise ValueError(
                "q0=group with loss=cross_entropy: the mean of r − βS is no soft value, so "
                "failures would hardly count; use q0=group_soft or q0=monte_carlo, or loss=squared"
            )
        if self.exponent == "q" and self.loss != "cross_entropy":
            raise ValueError(
                f"exponent=q with loss={self.loss}: only cross_entropy has a probability of "
                "success; use loss=cross_entropy or exponent=q_over_beta"
            )


def soft_value(rewards: Tensor, beta: float, dim: int = -1) -> Tensor:
    """V = β log mean exp(r/β) along `dim`: the prompt's soft value from responses of π_ref.

    For binary rewards with success rate p it is β log(1 − p + p e^{1/β}). Computed in float64.
    """
    count = rewards.shape[dim]
    value = beta * (torch.logsumexp(rewards.double() / beta, dim) - math.log(count))
    return value.to(rewards.dtype) if rewards.is_floating_point() else value


def pooled_soft_value(
    reference_rewards: Tensor, rewards: Tensor, log_weights: Tensor, beta: float
) -> Tensor:
    """The soft value from responses of π_ref and of rollout policies μ together → scalar, float64.

    reference_rewards (k,); rewards, log_weights (n,), the latter Σ_t log π_ref − log μ of each
    response under its own rollout policy. β log of the mean over all k + n of w e^{r/β}, with w = 1
    for π_ref's own: each term has expectation e^{V/β}, so only the logarithm biases the value.

    The weights are not normalised by their sum. A policy that solves the prompt no longer generates
    failures; without them, normalised weights would make π_ref look as good. Plain weights end
    without variance at the optimum, where w e^{r/β} = e^{V/β} for every response.
    """
    own_log_weights = torch.zeros(len(reference_rewards), dtype=torch.float64)
    terms = torch.cat([reference_rewards, rewards]).double() / beta
    terms = terms + torch.cat([own_log_weights, log_weights.double()])
    return beta * (terms.logsumexp(-1) - math.log(len(terms)))


def group_soft_value(
    rewards: Tensor, log_ratios: Tensor, keep: Tensor, group_size: int, beta: float
) -> Tensor:
    """V̂ = β log mean_k exp(r_k/β − S_k) over each group's kept rows → (groups,), float64.

    rewards, log_ratios, keep (batch,); S_k = Σ_t log μ − log π_ref of each response under its own
    writer μ. E_μ[(π_ref/μ) e^{r/β}] = e^{V/β}: the mean is unbiased for e^{V/β} from any writers
    and needs no reference responses. At the optimum, where r/β − S = V/β for every response, it has
    no variance. −∞ for a group without kept rows.
    """
    terms = rewards.double() / beta - log_ratios.double()
    return beta * group_log_mean_exp(terms, keep, group_size)


def log_ratio_sum(logp: Tensor, ref_logp: Tensor, mask: Tensor) -> Tensor:
    """S(y) = Σ_t log π_θ − log π_ref over the response's tokens → (batch,). A sum, not a mean."""
    return masked_sum(logp.masked_fill(~mask, 0.0) - ref_logp.masked_fill(~mask, 0.0), mask)


def terminal_q(logp: Tensor, ref_logp: Tensor, mask: Tensor, q0: Tensor, beta: float) -> Tensor:
    """Q_T = Q̂_0 + β S(y), the policy's prediction of the reward → (batch,), in units of reward."""
    return q0 + beta * log_ratio_sum(logp, ref_logp, mask)


def log1mexp(x: Tensor) -> Tensor:
    """log(1 − e^x) for x < 0, accurate at both ends."""
    near = torch.log(-torch.expm1(x.clamp(min=-math.log(2))))
    far = torch.log1p(-torch.exp(x.clamp(max=-math.log(2))))
    return torch.where(x > -math.log(2), near, far)


def success_cross_entropy(u: Tensor, v: Tensor, slope_bound: float, slope_width: float) -> Tensor:
    """−[p log q + (1 − p) log(1 − q)] with q = e^u and p = e^v, elementwise; v ≤ 0, u any.

    Its slope in u is (q − p)/(1 − q): −1 for a success that was not predicted, about q for a
    failure that was not predicted either. Beyond q = 1 (Q above the best reward: no probability)
    there is no cross-entropy. Near and beyond it the loss continues as follows.

    A success (p = 1) has the loss of `success_shortfall` instead of −log q: slope 0 from q = 1 on.
    Q above its reward only says that Q̂_0 is too high, or that failures still hold mass. A pull
    downwards would stop it at the mass p(x)/p̂(x), where p̂ is the prompt's success rate according
    to Q̂_0. The optimum stays unique under an exact Q̂_0, because π_θ is normalised and every failure
    is drawn to its own target.

    Any other response is pulled down. Towards q = 1 its slope diverges. From the point where it
    reaches `slope_bound` on, the loss is a straight line of that slope: it stays finite, and the
    minimum at q = p does not move. The slope is continuous and changes by at most
    (1 + slope_bound)²/(1 − p) per nat, so a target just below 1 is as good as a jump.
    """
    failure = -torch.expm1(v)  # 1 − p
    uncertain = failure > 0
    turn = torch.log1p(-failure / (1 + slope_bound))  # where (q − p)/(1 − q) = slope_bound
    inner = torch.where(u < turn, u, turn)
    inner = torch.where(uncertain, inner, -1.0)  # a success's turn is 0, where log(1 − q) is −∞
    entropy = -v.exp() * inner - failure * log1mexp(inner)
    straight = slope_bound * (u - turn).clamp(min=0)
    return torch.where(uncertain, entropy + straight, success_shortfall(u, slope_width))


def success_shortfall(u: Tensor, width: float) -> Tensor:
    """−log q of a success, elementwise, smoothed where q = e^u reaches 1.

    0 for u ≥ 0; u²/(2 width) for −width < u < 0; −u − width/2 below. So its slope is continuous:
    clamp(u/width, −1, 0). With −log q it would jump from −1 to 0 at u = 0, where the responses of a
    solved prompt end, and rounding would decide on which side of it equal responses are.

    With exponent=q_over_beta, where u moves as S does, successes of a solved prompt settle if one
    step changes S by less than about twice the width, and the wider, the slower. The default, 1,
    settles for steps of two nats, which change a probability by a factor of seven; 0.5 settles for
    one nat, and 2 takes longer there. At 1 it also has the
    slope of p log(p/q) − p + q near the target, e^u − 1.
    """
    below = u.clamp(max=0)
    return torch.nn.functional.huber_loss(
        below, torch.zeros_like(below), reduction="none", delta=width
    ).div(width)


def spo_loss(
    logp: Tensor,
    ref_logp: Tensor,
    mask: Tensor,
    rewards: Tensor,
    q0: Tensor,
    *,
    beta: float,
    kind: LossKind,
    reward_high: float = 0.0,
    exponent: Exponent = "q_over_beta",
    slope_bound: float = 1.0,
    slope_width: float = 1.0,
    huber_width: float = 0.1,
) -> Tensor:
    """Mean over responses of the distance between Q_T and the reward → scalar.

    squared: (Q_T − r)².
    cross_entropy: exp((Q_T − reward_high)/β) read as a probability of success, against the target
        exp((r − reward_high)/β); exponent=q leaves out this β, and not the one in Q_T.
        `success_cross_entropy` covers Q_T near or above reward_high. A reward above it is a
        ValueError. Only this kind reads `exponent`, `slope_bound` and `slope_width`.
    advantage: Huber(Q_T − r), ½ (Q_T − r)² near 0 and linear beyond `huber_width`, which only
        this kind reads. Since Q_T = Q̂_0 + Σ_t A_t with A_t = β log π_θ/π_ref, it regresses
        Σ_t A_t on r − Q̂_0. The paper names an advantage regression among its ablations; this
        form of it is ours.
    """
    q = terminal_q(logp, ref_logp, mask, q0, beta)
    if kind == "squared":
        return (q - rewards).square().mean()
    if kind == "cross_entropy":
        scale = beta if exponent == "q_over_beta" else 1.0
        u, v = _below_best(q, rewards, reward_high)
        return success_cross_entropy(u / scale, v / scale, slope_bound, slope_width).mean()
    if kind == "advantage":
        return torch.nn.functional.huber_loss(q - q0, rewards - q0, delta=huber_width)
    raise ValueError(f"loss {kind!r}; choose one of {', '.join(get_args(LossKind))}")


def _below_best(q: Tensor, rewards: Tensor, reward_high: float) -> tuple[Tensor, Tensor]:
    """Q_T and the rewards relative to the best reward, which no reward exceeds."""
    if bool((rewards > reward_high).any()):
        raise ValueError(
            f"a reward of {float(rewards.max()):g} exceeds reward_high={reward_high:g}"
        )
    return q - reward_high, (rewards - reward_high).to(q.dtype)


class SPO(Algorithm):
    """Needs the reference, and the prompt's soft value by one of three estimators."""

    Config = SPOConfig
    config: SPOConfig

    @property
    def needs(self) -> Needs:
        c = self.config
        best_reward = "bound" if c.loss == "cross_entropy" else ""
        needs = Needs(reference=True, off_policy=True, best_reward=best_reward)
        if c.q0 == "group_soft":
            return replace(needs, groups=2)
        if c.q0 == "group":
            return replace(needs, groups=2, policy=True, by_group=True)
        return replace(needs, initial_value=c.q0)

    @property
    def initial_value_beta(self) -> float:
        return self.config.beta

    def prepare(self, batch: Batch) -> Batch:
        if self.config.q0 == "group_soft":
            return self._with_group_soft_value(batch)
        if self.config.q0 != "group":
            return batch
        # VarGrad: the value that makes the group's mean error zero at the current policy.
        s = log_ratio_sum(batch.policy_logp, batch.ref_logp, batch.mask)
        mean = group_mean(batch.rewards - self.config.beta * s, batch.keep, batch.group_size)
        return replace(batch, q0=mean.repeat_interleave(batch.group_size))

    def _with_group_soft_value(self, batch: Batch) -> Batch:
        """From responses with log-probs; the programs of a group without any are left out."""
        s = log_ratio_sum(batch.rollout_logp, batch.ref_logp, batch.mask)
        size, known = batch.group_size, batch.keep & batch.online
        if batch.keep.any() and not known.any():
            raise ValueError(
                "q0=group_soft needs responses with log-probs, and the batch has programs of the "
                "data set alone; use train.offline_share below 1, or q0=monte_carlo"
            )
        value = group_soft_value(batch.rewards, s, known, size, self.config.beta)
        value = value.to(batch.rewards.dtype).repeat_interleave(size)
        has_value = value.isfinite()
        return replace(batch, q0=value.masked_fill(~has_value, 0.0), keep=batch.keep & has_value)

    def loss(self, policy: PolicyOutput, batch: Batch) -> tuple[Tensor, dict[str, Tensor]]:
        c, share = self.config, batch.sequence_share
        loss = spo_loss(
            policy.logp,
            batch.ref_logp,
            batch.mask,
            batch.rewards,
            batch.q0,
            beta=c.beta,
            kind=c.loss,
            reward_high=self.reward_high,
            exponent=c.exponent,
            slope_bound=c.slope_bound,
            slope_width=c.slope_width,
            huber_width=c.huber_width,
        )
        with torch.no_grad():
            q = terminal_q(policy.logp, batch.ref_logp, batch.mask, batch.q0, c.beta)
            best, above = batch.rewards >= self.reward_high, q > self.reward_high
            metrics = {
                "spo/q_initial": batch.q0.mean(),
                "spo/q_terminal": q.mean(),
                "spo/q_error": (q - batch.rewards).abs().mean(),
                "spo/q_above_best": above.float().mean(),
                "spo/best": best.float().mean(),
                "spo/best_and_above": (best & above).float().mean(),
            }
        return loss * share, {name: value * share for name, value in metrics.items()}
