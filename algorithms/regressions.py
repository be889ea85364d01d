"""Squared errors of β log π/anchor against R − V: GVPO, TBA, CoPG, A*-PO, QRPO, OAPL, Kimi.

All of them fit e = β h − (R − V) to zero; h is the sum of log π − log anchor over a response. With
the reference as anchor and the right V, e is zero for every response of any policy at the optimum
of E[R] − β KL(π ‖ π_ref). With V the group's mean of R − β h (VarGrad), the loss asks that a
group's errors be equal. Its gradient is the same with V detached or not: here V is computed at the
current policy, before the batch is split. Then GVPO, TBA and CoPG differ only by a factor of the
loss (`scale`), for G responses to a prompt:

    variance  Σ e² / 2(G − 1)         GVPO
    balance   Σ e² / (G β²)           TBA, a mean over responses
    pairs     Σ_{i<j} (e_i − e_j)² / (G − 1) = G Σ e² / (G − 1)      CoPG
    plain     Σ e² / G                A*-PO, OAPL, a mean over responses

A group whose rewards are all equal still has a gradient: it pulls the h together.

DPO, IPO, INPO, RSO and LiPO fit β h to verdicts instead of rewards: each accepted response of a
group against each that failed. Their loss is a mean over a prompt's pairs, then over the prompts
that have any: a prompt whose responses all failed or all passed has none. A pair needs the gradient
of two rows, which may be in different micro-batches. So `prepare` computes the slopes of the loss
in h at the current policy, which is the policy of the step, and `loss` gives each row its own
slope. PRO ranks mean log-probs instead of h, without a reference.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

from pydantic import NonNegativeFloat, PositiveFloat, PositiveInt

from algorithms.base import Algorithm, Batch, Needs, Options, PolicyOutput, Share
from algorithms.ppo import CriticOptions
from algorithms.tensors import (
    Tensor,
    group_count,
    group_log_mean_exp,
    group_mean,
    group_ranks,
    masked_sum,
    tie_breakers,
    torch,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

Anchor = Literal["reference", "behaviour"]


@dataclass
class SquaredRegressionOptions(Options):
    """Options of GVPO, TBA and CoPG."""

    beta: PositiveFloat
    scale: Literal["variance", "balance", "pairs"]
    anchor: Anchor


def anchor_sum(logp: Tensor, batch: Batch, anchor: Anchor) -> Tensor:
    """h: Σ_t log π − log anchor of each response → (batch,)."""
    anchor_logp = batch.ref_logp if anchor == "reference" else batch.behaviour_logp
    return masked_sum(logp, batch.mask) - masked_sum(anchor_logp, batch.mask)


class SquaredRegression(Algorithm):
    """GVPO (arXiv 2504.19599), TBA (2503.18929), CoPG (2406.19185): VarGrad in three scales.

    GVPO's paper takes the reference as anchor, its code the rollout policy. With β = 1/η, CoPG's
    pairs with the rollout policy as anchor are REBEL's.
    """

    Config = SquaredRegressionOptions
    config: SquaredRegressionOptions

    @property
    def needs(self) -> Needs:
        to_reference = self.config.anchor == "reference"
        return Needs(
            reference=to_reference,
            off_policy=to_reference,
            behaviour="" if to_reference else "own",
            groups=2,
            policy=True,
            by_group=True,
        )

    def prepare(self, batch: Batch) -> Batch:
        c, size = self.config, batch.group_size
        h = anchor_sum(batch.policy_logp, batch, c.anchor)
        value = group_mean(batch.rewards - c.beta * h, batch.keep, size).repeat_interleave(size)
        weights = self._weights(batch).unsqueeze(-1).expand(batch.mask.shape)
        return replace(batch, targets=batch.rewards - value, weights=weights)

    def _weights(self, batch: Batch) -> Tensor:
        """Weights of e² in a mean over rows → (batch,): each prompt counts the same."""
        count = group_count(batch.keep, batch.group_size, batch.rewards.dtype)
        if self.config.scale == "balance":
            return torch.full_like(batch.rewards, self.config.beta**-2)
        groups = int(batch.keep.view(-1, batch.group_size).any(-1).sum())
        factor = 0.5 if self.config.scale == "variance" else count
        return factor / (count - 1).clamp(min=1) * (int(batch.keep.sum()) / max(1, groups))

    def loss(self, policy: PolicyOutput, batch: Batch) -> tuple[Tensor, dict[str, Tensor]]:
        c, share = self.config, batch.sequence_share
        error = c.beta * anchor_sum(policy.logp, batch, c.anchor) - batch.targets
        loss = (batch.weights[:, 0] * error.square()).mean()
        return loss * share, {"squared/error": error.detach().abs().mean() * share}


@dataclass
class AStarPOOptions(Options):
    """Options of A*-PO."""

    beta: PositiveFloat
    value_beta: PositiveFloat
    q0_samples: PositiveInt


class AStarPO(Algorithm):
    """A*-PO (arXiv 2505.20686): e² with V* = β1 log mean exp(R/β1) of the reference's responses.

    One response to a prompt is enough. With β1 ≠ β2, as published, it has no KL optimum; with
    β1 = β2 it is SPO's squared loss. A prompt that the reference never solves has V* = 0 and is
    kept; TRL drops it.
    """

    Config = AStarPOOptions
    config: AStarPOOptions

    @property
    def needs(self) -> Needs:
        return Needs(reference=True, off_policy=True, initial_value="monte_carlo")

    @property
    def initial_value_beta(self) -> float:
        return self.config.value_beta

    def loss(self, policy: PolicyOutput, batch: Batch) -> tuple[Tensor, dict[str, Tensor]]:
        h, share = anchor_sum(policy.logp, batch, "reference"), batch.sequence_share
        error = self.config.beta * h - (batch.rewards - batch.q0)
        return error.square().mean() * share, {"squared/error": error.detach().abs().mean() * share}


@dataclass
class QRPOOptions(Options):
    """Options of QRPO."""

    beta: PositiveFloat
    q0_samples: PositiveInt


class QRPO(Algorithm):
    """Quantile reward policy optimisation (arXiv 2507.08068): (q − β log Z − β h)².

    q is the share of the reference's rewards to the prompt that are no better than R. A reward
    without ties is uniform on [0, 1] after this, so Z = β (e^{1/β} − 1) needs no estimate. Two
    rewards alone have ties: q is 1 for a success and the reference's failure rate for a failure.
    """

    Config = QRPOOptions
    config: QRPOOptions

    @property
    def needs(self) -> Needs:
        return Needs(reference=True, off_policy=True, initial_value="quantile")

    def loss(self, policy: PolicyOutput, batch: Batch) -> tuple[Tensor, dict[str, Tensor]]:
        beta, share = self.config.beta, batch.sequence_share
        # β log Z, with the exponent taken out: e^{1/β} overflows
        log_z = 1 + beta * (math.log(beta) + math.log1p(-math.exp(-1 / beta)))
        error = batch.q0 - log_z - beta * anchor_sum(policy.logp, batch, "reference")
        return error.square().mean() * share, {"squared/error": error.detach().abs().mean() * share}


@dataclass
class OAPLOptions(Options):
    """Options of OAPL."""

    beta: PositiveFloat
    value_beta: PositiveFloat


class OAPL(Algorithm):
    """OAPL (arXiv 2602.19362, and its code): e², the writer as anchor, V the group's soft value.

    V = β1 log mean exp(R/β1) over the group's rewards, h = Σ log π/μ against the policy that wrote
    the response. The published form writes `train.sync_every` batches with one policy. With β1 = β2
    it is SPO's squared loss with q0=group_soft and a reference that moves to the writer.
    """

    Config = OAPLOptions
    config: OAPLOptions

    @property
    def needs(self) -> Needs:
        return Needs(groups=2, behaviour="own")

    def prepare(self, batch: Batch) -> Batch:
        beta, size = self.config.value_beta, batch.group_size
        value = beta * group_log_mean_exp(batch.rewards.double() / beta, batch.keep, size)
        value = value.to(batch.rewards.dtype).repeat_interleave(size)
        return replace(batch, targets=batch.rewards - value)

    def loss(self, policy: PolicyOutput, batch: Batch) -> tuple[Tensor, dict[str, Tensor]]:
        h, share = anchor_sum(policy.logp, batch, "behaviour"), batch.sequence_share
        error = self.config.beta * h - batch.targets
        return error.square().mean() * share, {"squared/error": error.detach().abs().mean() * share}


@dataclass
class KimiOptions(Options):
    """Options of Kimi's policy mirror descent."""

    tau: PositiveFloat


class Kimi(Algorithm):
    """Kimi k1.5's policy mirror descent (arXiv 2501.12599): −A log π(y) + τ/2 h², A = R − mean.

    Up to a constant it is (τ h − A)²/2τ with the rollout policy as anchor and V the group's mean
    reward. Sums over a response, where OpenKimi takes means. Its fixed point on data of other
    policies is not the KL optimum.
    """

    Config = KimiOptions
    config: KimiOptions

    @property
    def needs(self) -> Needs:
        return Needs(groups=2, behaviour="own")

    def prepare(self, batch: Batch) -> Batch:
        mean = group_mean(batch.rewards, batch.keep, batch.group_size)
        return replace(batch, targets=batch.rewards - mean.repeat_interleave(batch.group_size))

    def loss(self, policy: PolicyOutput, batch: Batch) -> tuple[Tensor, dict[str, Tensor]]:
        h = anchor_sum(policy.logp, batch, "behaviour")
        gain = batch.targets * masked_sum(policy.logp, batch.mask)
        loss = (0.5 * self.config.tau * h.square() - gain).mean()
        return loss * batch.sequence_share, {}


@dataclass
class DROOptions(CriticOptions):
    """Options of DRO-V."""

    beta: PositiveFloat
    value_coef: NonNegativeFloat


def prompt_value(values: Tensor, mask: Tensor) -> Tensor:
    """The value before the first response token: (batch, time) twice → (batch,)."""
    first = mask & (mask.cumsum(-1) == 1)
    return masked_sum(values, first)


class DRO(Algorithm):
    """DRO-V: direct reward optimisation with a value (Richemond et al., arXiv 2405.19107).

    ½ (R − V(x) − β h)², h the response's Σ log π/π_ref. V is learnt from the same error: it is the
    critic's value at the prompt's last token, which sees no response. The policy's part is divided
    by β, so that β does not set its step. (Formulas as two public codes agree on them; the paper's
    text was not read.)
    """

    Config = DROOptions
    config: DROOptions

    @property
    def needs(self) -> Needs:
        return Needs(reference=True, critic=self.config.critic, off_policy=True)

    def values_and_outcomes(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """Of all responses. V is fitted to R − β h, but h is of the policy in training."""
        return prompt_value(batch.values, batch.mask), batch.rewards

    def loss(self, policy: PolicyOutput, batch: Batch) -> tuple[Tensor, dict[str, Tensor]]:
        c, share = self.config, batch.sequence_share
        h = anchor_sum(policy.logp, batch, "reference")
        value = prompt_value(policy.values, batch.mask)
        policy_loss = 0.5 * (batch.rewards - value.detach() - c.beta * h).square().mean() / c.beta
        value_loss = 0.5 * (batch.rewards - value - c.beta * h.detach()).square().mean()
        metrics = {
            "dro/value_loss": value_loss.detach() * share,
            "dro/value_mean": value.detach().mean() * share,
        }
        return (policy_loss + c.value_coef * value_loss) * share, metrics


# Preferences


@dataclass
class PairOptions(Options):
    """Common options."""

    beta: PositiveFloat


class PreferenceLoss(Algorithm):
    """Subclasses define the loss of a pair."""

    Config: type[Options] = PairOptions
    config: Any

    @property
    def needs(self) -> Needs:
        return Needs(reference=True, groups=2, policy=True, off_policy=True)

    def score(self, logp: Tensor, batch: Batch) -> Tensor:
        """h, by which responses are compared → (batch,)."""
        return anchor_sum(logp, batch, "reference")

    def pair_loss(self, h_chosen: Tensor, h_rejected: Tensor) -> Tensor:
        """Loss of a pair, elementwise, from both h."""
        raise NotImplementedError(f"{type(self).__name__}: a pair_loss, or other group_losses")

    def group_losses(self, h: Tensor, rewards: Tensor, keep: Tensor, tie_breaker: Tensor) -> Tensor:
        """(groups, size) each → (groups,): the mean over a prompt's pairs, 0 without any.

        `tie_breaker` is for objectives that rank responses.
        """
        better = preferences(rewards, keep)
        losses = self.pair_loss(h.unsqueeze(-1), h.unsqueeze(-2)).masked_fill(~better, 0.0)
        return losses.sum((-1, -2)) / better.sum((-1, -2)).clamp(min=1)

    def prepare(self, batch: Batch) -> Batch:
        shape = (-1, batch.group_size)
        rewards, keep = batch.rewards.view(shape), batch.keep.view(shape)
        logp = batch.policy_logp if batch.ref_logp is None else batch.ref_logp
        tie_breaker = tie_breakers(logp, batch.mask).view(shape)
        prompts = preferences(rewards, keep).any(-1).any(-1).sum().clamp(min=1)
        start = self.score(batch.policy_logp, batch).masked_fill(~batch.keep, 0.0)
        with torch.enable_grad():
            h = start.detach().requires_grad_(True)
            value = self.group_losses(h.view(shape), rewards, keep, tie_breaker).sum() / prompts
            (slopes,) = torch.autograd.grad(value, h)
        slopes = slopes.unsqueeze(-1).expand(batch.mask.shape)
        return replace(batch, weights=slopes, targets=value.detach().expand(len(start)))

    def loss(self, policy: PolicyOutput, batch: Batch) -> tuple[Tensor, dict[str, Tensor]]:
        h = self.score(policy.logp, batch)
        linear = (batch.weights[:, 0] * (h - h.detach())).sum()  # 0, with the slopes as gradient
        return batch.targets.mean() * batch.sequence_share + linear, {}


def preferences(rewards: Tensor, keep: Tensor) -> Tensor:
    """(groups, size) twice → (groups, size, size): the first is better, and both are kept."""
    both = keep.unsqueeze(-1) & keep.unsqueeze(-2)
    return (rewards.unsqueeze(-1) > rewards.unsqueeze(-2)) & both


class DPO(PreferenceLoss):
    """Direct preference optimisation (Rafailov et al., arXiv 2305.18290, eq. 7)."""

    def pair_loss(self, h_chosen: Tensor, h_rejected: Tensor) -> Tensor:
        return -torch.nn.functional.logsigmoid(self.config.beta * (h_chosen - h_rejected))


class IPO(PreferenceLoss):
    """Identity preference optimisation (Azar et al., arXiv 2310.12036, eq. 17).

    h is a sum, as in the paper; public codes divide it by the response's length.
    """

    def pair_loss(self, h_chosen: Tensor, h_rejected: Tensor) -> Tensor:
        return (h_chosen - h_rejected - 0.5 / self.config.beta).square()


@dataclass
class INPOOptions(PairOptions):
    """Options of INPO."""

    beta: PositiveFloat
    reference_share: Share


class INPO(IPO):
    """Iterative Nash policy optimisation (Zhang et al., arXiv 2407.00617): IPO with two anchors.

    h = log π − w log π_ref − (1 − w) log μ, summed; w = τ/η and β = η of the paper. μ is the
    rollout policy, in the paper that of the round (`train.sync_every`). With w = 1 it is IPO.
    (Formula as in two public codes; the paper's text was not read.)
    """

    Config = INPOOptions
    config: INPOOptions

    @property
    def needs(self) -> Needs:
        return Needs(reference=True, groups=2, policy=True, behaviour="own")

    def score(self, logp: Tensor, batch: Batch) -> Tensor:
        share = self.config.reference_share
        to_reference = anchor_sum(logp, batch, "reference")
        return share * to_reference + (1 - share) * anchor_sum(logp, batch, "behaviour")


@dataclass
class RSOOptions(PairOptions):
    """Options of RSO."""

    beta: PositiveFloat
    samples: PositiveInt
    sampling_beta: PositiveFloat


class RSO(PreferenceLoss):
    """Statistical rejection sampling optimisation (Liu et al., arXiv 2309.06657).

    The hinge max(0, 1 − γ (h_w − h_l)) on pairs of `samples` responses, drawn from the group as
    from π_ref e^{R/β} (its algorithm 1). A group of at most `samples` responses is used whole. All
    pairs of the drawn responses count, where the paper ranks half as many. The paper's candidates
    come from the reference, here from the rollout policy. Equal responses are drawn together.
    """

    Config = RSOOptions
    config: RSOOptions

    def prepare(self, batch: Batch) -> Batch:
        c, shape = self.config, (-1, batch.group_size)
        # Uniform numbers from a response's own log-prob: they do not depend on the batch's layout.
        number = 1e3 * masked_sum(batch.ref_logp, batch.mask).double().view(shape)
        uniforms = [(number * math.sqrt(i * i + 1)).frac().abs() for i in range(c.samples)]
        drawn = rejection_sample(
            batch.rewards.view(shape), batch.keep.view(shape), uniforms, c.samples, c.sampling_beta
        )
        return super().prepare(replace(batch, keep=drawn.flatten()))

    def pair_loss(self, h_chosen: Tensor, h_rejected: Tensor) -> Tensor:
        return torch.relu(1 - self.config.beta * (h_chosen - h_rejected))


def rejection_sample(
    rewards: Tensor, keep: Tensor, uniforms: Sequence[Tensor], count: int, beta: float
) -> Tensor:
    """`count` of each group's kept rows, or all if no more → (groups, size) bool.

    rewards, keep and each of `uniforms` (numbers in [0, 1), one tensor a round): (groups, size).
    A round accepts a remaining row with probability e^{(R − the best remaining R)/β}, where its
    number is below that. The best is always accepted, so `count` rounds are enough. If more are
    accepted than there is room for, those with the relatively smallest numbers stay.
    """
    drawn = torch.zeros_like(keep)
    for uniform in uniforms:
        left = keep & ~drawn
        best = rewards.masked_fill(~left, -torch.inf).amax(-1, keepdim=True)
        score = uniform / ((rewards - best) / beta).exp()  # uniform in [0, 1) among the accepted
        score = torch.where(left & (score < 1), score, torch.inf)
        before = (score.unsqueeze(-2) < score.unsqueeze(-1)).sum(-1)
        drawn = drawn | ((score < 1) & (before < count - drawn.sum(-1, keepdim=True)))
    return drawn


class LiPO(PreferenceLoss):
    """LiPO-λ (Liu et al., arXiv 2402.01878): the logistic loss of a pair, weighed as in LambdaRank.

    Weights |2^ψ_i − 2^ψ_j| |1/log(1 + rank_i) − 1/log(1 + rank_j)|, ψ the rewards, rank 1 the
    greatest h of the group; summed over a prompt's pairs. Every response has its own rank: at the
    start every h is 0, and equal ranks would give every pair the weight 0 for ever.
    """

    def pair_loss(self, h_chosen: Tensor, h_rejected: Tensor) -> Tensor:
        return torch.nn.functional.softplus(-self.config.beta * (h_chosen - h_rejected))

    def group_losses(self, h: Tensor, rewards: Tensor, keep: Tensor, tie_breaker: Tensor) -> Tensor:
        ranks = group_ranks(h.detach(), tie_breaker, keep)
        weight = pairwise_distance(2**rewards)
        weight = weight * pairwise_distance(1 / torch.log1p(1.0 + ranks.to(h.dtype)))
        losses = weight * self.pair_loss(h.unsqueeze(-1), h.unsqueeze(-2))
        return losses.masked_fill(~preferences(rewards, keep), 0.0).sum((-1, -2))


def pairwise_distance(x: Tensor) -> Tensor:
    """|x_i − x_j|: (groups, size) → (groups, size, size)."""
    return (x.unsqueeze(-1) - x.unsqueeze(-2)).abs()


@dataclass
class PROOptions(Options):
    """Options of PRO."""

    imitation_coef: NonNegativeFloat


class PRO(PreferenceLoss):
    """Preference ranking optimisation (Song et al., arXiv 2306.17492): each against all worse ones.

    s is a response's mean log-prob. Of i and the responses j that are worse, by d_ij = r_i − r_j:
    log(e^{s_i D_i} + Σ_j e^{s_j d_ij}) − s_i D_i, D_i the greatest d_ij; summed over a prompt's
    responses, as in the authors' code. Its rankings have no ties; equal responses are left out of
    each other's sum here. To this comes maximum likelihood of the prompt's best response (of the
    best on average, if there are several), weighed by imitation_coef (G − 1)².
    """

    Config = PROOptions
    config: PROOptions

    @property
    def needs(self) -> Needs:
        return Needs(groups=2, policy=True, off_policy=True)

    def score(self, logp: Tensor, batch: Batch) -> Tensor:
        return masked_sum(logp, batch.mask) / batch.mask.sum(-1).clamp(min=1)

    def group_losses(self, h: Tensor, rewards: Tensor, keep: Tensor, tie_breaker: Tensor) -> Tensor:
        better = preferences(rewards, keep)
        distance = pairwise_distance(rewards)
        own = h * distance.masked_fill(~better, 0.0).amax(-1)
        worse = (h.unsqueeze(-2) * distance).masked_fill(~better, -torch.inf)
        losses = torch.cat([own.unsqueeze(-1), worse], -1).logsumexp(-1) - own
        return losses.sum(-1)

    def prepare(self, batch: Batch) -> Batch:
        shape, batch = (-1, batch.group_size), super().prepare(batch)
        keep, total = batch.keep.view(shape), masked_sum(batch.policy_logp, batch.mask)
        better = preferences(batch.rewards.view(shape), keep)
        best = better.any(-1) & ~better.any(-2)
        prompts = best.any(-1).sum().clamp(min=1)
        weight = self.config.imitation_coef * (keep.sum(-1).to(total.dtype) - 1).square() / prompts
        share = ((weight / best.sum(-1).clamp(min=1)).unsqueeze(-1) * best).flatten()
        slope = share * batch.mask.sum(-1)  # of Σ log π = length × s
        imitation = -(share * total).sum()
        return replace(
            batch, weights=batch.weights - slope.unsqueeze(-1), targets=batch.targets + imitation
        )
