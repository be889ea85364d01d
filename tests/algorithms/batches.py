"""Random batches for the tests of losses: ragged, padded with NaN, in float64."""

import torch

from algorithms.base import Batch, PolicyOutput

GROUP = 4


def raw(seed=0, rows=12, time=6):
    """Per-row tensors and the lengths; nothing is padded yet."""
    generator = torch.Generator().manual_seed(seed)
    names = ("logp", "behaviour_logp", "ref_logp", "policy_logp", "values", "new_values")
    drawn = -torch.rand(len(names), rows, time, generator=generator, dtype=torch.float64)
    lengths = torch.randint(1, time + 1, (rows,), generator=generator)
    rewards = (torch.rand(rows, generator=generator) < 0.4).double()
    rewards[:2] = torch.tensor([0.0, 1.0])
    return dict(zip(names, drawn, strict=True)), lengths, rewards


def padded(x, lengths, left, right, side):
    """(rows, time) → with padding, full of NaN, tokens flush left or flush right, and the mask."""
    rows, time = x.shape
    width = left + time + right
    out = torch.full((rows, width), torch.nan, dtype=x.dtype)
    mask = torch.zeros(rows, width, dtype=torch.bool)
    for row, length in enumerate(lengths.tolist()):
        start = left + (time - length if side == "left" else 0)
        out[row, start : start + length] = x[row, :length]
        mask[row, start : start + length] = True
    return out, mask


def gradient(
    algorithm,
    given,
    lengths,
    rewards,
    *,
    layout=(0, 0, "right"),
    order=None,
    cut=None,
    keep=None,
    online=None,
    fresh=None,
    group=GROUP,
    batches=70,
):
    """(loss, gradient of every row's own log-probs and values) for one way to lay the batch out.

    `online` (rows,) bool; without it, an algorithm that takes the data set's programs has one in
    each group. Only what is needed is given.
    """
    writer, ref = given["behaviour_logp"], given["ref_logp"]
    between = {"proximal_logp": 0.5, "start_logp": 0.3, "precedent_logp": 0.8}
    given = {k: writer + share * (ref - writer) for k, share in between.items()} | given
    leaves = {k: given[k].clone().requires_grad_(True) for k in ("logp", "new_values")}
    tensors = {k: padded(v, lengths, *layout)[0] for k, v in {**given, **leaves}.items()}
    mask = padded(given["logp"], lengths, *layout)[1]
    order = torch.arange(len(mask)) if order is None else order
    keep = torch.ones(len(mask), dtype=torch.bool) if keep is None else keep
    needs = algorithm.needs
    told = {
        "behaviour_logp": needs.behaviour,
        "ref_logp": needs.reference,
        "policy_logp": needs.policy,
        "proximal_logp": needs.average is not None,
        "start_logp": needs.start,
        "precedent_logp": needs.precedent is not None,
        "values": needs.critic != "none",
    }
    if online is None:
        online = (torch.arange(len(mask)) % group != 1) | (not needs.off_policy)
    fresh = online if fresh is None else fresh
    batch = Batch(
        mask=mask[order],
        rewards=rewards[order],
        keep=keep[order],
        online=online[order],
        fresh=fresh[order],
        group_size=group,
        batches=batches,
        q0=torch.full_like(rewards, 0.3) if needs.initial_value != "none" else None,
        **{k: tensors[k][order].detach() for k, wanted in told.items() if wanted},
    )
    batch = algorithm.prepare(batch)
    kept = batch.keep.nonzero().flatten()
    batch = batch.only_kept()
    total = 0.0
    for rows in torch.arange(len(kept)).split(cut or len(kept)):
        at = order[kept[rows]]
        output = PolicyOutput(
            logp=tensors["logp"][at], entropy=tensors["logp"][at], values=tensors["new_values"][at]
        )
        total = total + algorithm.loss(output, batch.rows(rows))[0]
    total.backward()
    return total.detach(), leaves["logp"].grad, leaves["new_values"].grad


def fresh(given):
    """The same, written by the policy itself and before the update."""
    its_own = ("behaviour_logp", "policy_logp", "start_logp")
    return given | dict.fromkeys(its_own, given["logp"])


def present(given):
    """The same with the policy before the update being the policy, as in training."""
    return {**given, "policy_logp": given["logp"]}
