"""PRIME, PRO and INPO against loops over numpy arrays, and what they become in special cases."""

import numpy as np
import pytest
import torch

from tests.algorithms.batches import GROUP, evaluated, raw
from tests.algorithms.pulls import KEEP, OWN, current, make, pair_case, pull, same

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


def test_pros_loss_compares_each_response_with_all_worse_ones():
    tensors, lengths, _ = raw(73)
    rewards = torch.tensor([0.0, 1.0, 0.4, 1.0, 0.2, 0.0, 0.7, 0.9] + [0.0] * 4).double()
    case, expected = (tensors, lengths, rewards), 0.0
    for rows, r in rows_of(case):
        s = [row["logp"].mean() for row in rows]
        for i in range(GROUP):
            d = [r[i] - r[j] for j in range(GROUP) if r[j] < r[i]]
            if d:
                worse = [np.exp(s[j] * (r[i] - r[j])) for j in range(GROUP) if r[j] < r[i]]
                expected += np.log(np.exp(s[i] * max(d)) + sum(worse)) - s[i] * max(d)
        best = [rows[i]["logp"].sum() for i in range(GROUP) if r[i] == r.max()]
        expected -= 0.05 * (GROUP - 1) ** 2 * np.mean(best)
    assert float(pull(make("pro"), case)[0]) == pytest.approx(expected / 2, rel=1e-12)


def test_pro_of_pairs_of_tokens_is_dpo_against_a_reference_of_equal_probabilities():
    tensors, lengths, rewards = pair_case(74)
    case = ({**tensors, "ref_logp": 0 * tensors["logp"]}, torch.ones_like(lengths), rewards)
    dpo = pull(make("dpo", beta=1.0), case, group=2)
    for one, other in zip(pull(make("pro", imitation_coef=0.0), case, group=2), dpo, strict=True):
        same(one, other)


@pytest.mark.parametrize("share", [0.0, 0.25, 1.0])
def test_inpos_pairs_lie_between_the_reference_and_the_writer(share):
    case, losses = raw(75), []
    for rows, r in rows_of(case):
        anchors = [share * row["ref_logp"] + (1 - share) * row["behaviour_logp"] for row in rows]
        h = [(row["logp"] - anchor).sum() for row, anchor in zip(rows, anchors, strict=True)]
        pairs = [(i, j) for i in range(GROUP) for j in range(GROUP) if r[i] > r[j]]
        losses += [np.mean([(h[i] - h[j] - 0.5 / BETA) ** 2 for i, j in pairs])] if pairs else []
    found = pull(make("inpo", beta=BETA, reference_share=share), case, online=OWN)
    assert float(found[0]) == pytest.approx(np.mean(losses), rel=1e-12)
    anchored = {**case[0], "ref_logp": share * case[0]["ref_logp"]}
    anchored["ref_logp"] = anchored["ref_logp"] + (1 - share) * case[0]["behaviour_logp"]
    for one, other in zip(
        found, pull(make("ipo", beta=BETA), (anchored, *case[1:]), policies=current), strict=True
    ):
        same(one, other)
