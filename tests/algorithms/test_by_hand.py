"""PRIME against loops over numpy arrays, and what it becomes in special cases."""

import numpy as np
import pytest
import torch

from tests.algorithms.batches import GROUP, evaluated, raw
from tests.algorithms.pulls import KEEP, make, pull, same

BETA = 0.3


def rows_of(case):
    """(a group's rows of numpy arrays without padding, its rewards), for the groups that are kept.

    A row has the log-probs of each policy by name.
    """
    tensors, lengths, rewards = case
    for start in range(0, int(KEEP.sum()), GROUP):
        rows = range(start, start + GROUP)
        cut = [{k: v[i, : lengths[i]].numpy() for k, v in tensors.items()} for i in rows]
        yield cut, rewards[start : start + GROUP].numpy()


def softplus(x):
    return np.log1p(np.exp(x))


def test_primes_loss_is_the_clipped_surrogate_and_the_cross_entropy_of_verdicts():
    case, surrogate, cross_entropy, tokens, slopes = raw(71), 0.0, 0.0, 0, []
    for rows, success in rows_of(case):
        paid = [BETA * (row["values"] - row["ref_logp"]) for row in rows]
        for i, row in enumerate(rows):
            others = [j for j in range(GROUP) if j != i]
            baseline = np.mean([paid[j].mean() for j in others])
            verdict = success[i] - success[others].mean()
            for t in range(len(paid[i])):
                advantage = (paid[i][t:] - baseline).sum() + verdict
                ratio = np.exp(row["logp"][t] - row["behaviour_logp"][t])
                surrogate -= min(ratio * advantage, np.clip(ratio, 0.8, 1.2) * advantage)
            tokens += len(paid[i])
            logit = (BETA * (row["new_values"] - row["ref_logp"])).sum()
            cross_entropy += softplus(-logit if success[i] else logit)
            slopes.append(BETA * (1 / (1 + np.exp(-logit)) - success[i]) / KEEP.sum().item())
    loss, _, of_values, metrics = evaluated(make("prime", beta=BETA), *case, keep=KEEP, cut=3)
    assert metrics["prime/cross_entropy"] == pytest.approx(cross_entropy / 8, rel=1e-12)
    assert float(loss) == pytest.approx(surrogate / tokens + cross_entropy / 8, rel=1e-12)
    live = torch.arange(6) < case[1][:8].unsqueeze(-1)
    same(of_values[:8], torch.tensor(slopes).unsqueeze(-1) * live)


@pytest.mark.parametrize("untrained", [True, False])
def test_primes_policy_without_process_rewards_has_rloos_gradient(untrained):
    """π_φ that is still the reference pays nothing, nor does one with β → 0."""
    tensors, *rest = raw(72)
    tensors = {**tensors, "behaviour_logp": tensors["logp"]}
    case = ({**tensors, "values": tensors["ref_logp"]} if untrained else tensors, *rest)
    prime = make("prime", beta=BETA if untrained else 1e-13)
    rloo = pull(make("rloo", kl_coef=0.0, aggregate="token_mean"), case)[1]
    assert rloo.abs().max() > 0
    same(pull(prime, case)[1], rloo)
    paid = pull(make("prime", beta=BETA), (tensors, *rest))[1]
    assert (paid - rloo).abs().max() > 1e-3
