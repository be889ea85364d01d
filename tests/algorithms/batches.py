"""Random batches for the tests of losses: ragged, padded with NaN or a number, in float64."""

from collections import Counter
from contextlib import contextmanager

import torch

from algorithms.base import Batch, PolicyOutput

GROUP = 4


def raw(seed=0, rows=12, time=6):
    """Per-row tensors, lengths and rewards, without padding."""
    generator = torch.Generator().manual_seed(seed)
    names = ("logp", "behaviour_logp", "ref_logp", "policy_logp", "values", "new_values")
    drawn = -torch.rand(len(names), rows, time, generator=generator, dtype=torch.float64)
    lengths = torch.randint(1, time + 1, (rows,), generator=generator)
    rewards = (torch.rand(rows, generator=generator) < 0.4).double()
    rewards[:2] = torch.tensor([0.0, 1.0])
    return dict(zip(names, drawn, strict=True)), lengths, rewards


OBSERVED = ((2, 3), (4, 1))  # observations: before this token, so many


def padded(x, lengths, left, right, side, padding=torch.nan):
    """(rows, time) → padded, tokens flush left or flush right, and the mask.

    `side` observed: flush left, as conversations with `padding` for the tokens of observations.
    """
    rows, time = x.shape
    observed = OBSERVED if side == "observed" else ()
    width = left + time + right + sum(count for _, count in observed)
    out = torch.full((rows, width), padding, dtype=x.dtype)
    mask = torch.zeros(rows, width, dtype=torch.bool)
    for row, length in enumerate(lengths.tolist()):
        start = left + (time - length if side == "left" else 0)
        for token in range(length):
            at = start + token + sum(count for before, count in observed if token >= before)
            out[row, at], mask[row, at] = x[row, token], True
    return out, mask


@contextmanager
def naming(lacking):
    """Add to an error over None which fields of the batch the objective's Needs do not name."""
    try:
        yield
    except (AttributeError, TypeError) as error:
        if "NoneType" in str(error):
            error.add_note(f"None in the batch, because Needs does not name them: {lacking}")
        raise


def gradient(algorithm, tensors, lengths, rewards, **options):
    """(loss, gradients of log-probs and values, in the rows' own order) for one layout of a batch.

    The options are those of `evaluated`.
    """
    return evaluated(algorithm, tensors, lengths, rewards, **options)[:3]


def metrics(algorithm, tensors, lengths, rewards, **options):
    """The loss's metrics, added over micro-batches."""
    return evaluated(algorithm, tensors, lengths, rewards, **options)[3]


def evaluated(
    algorithm,
    tensors,
    lengths,
    rewards,
    *,
    layout=(0, 0, "right"),
    padding=torch.nan,
    order=None,
    cut=None,
    keep=None,
    online=None,
    fresh=None,
    group=GROUP,
    batches=70,
):
    """(loss, gradients of log-probs and values, metrics) for one layout of a batch.

    `online` (rows,) bool; without it, an off-policy algorithm has one data-set program in each
    group. The batch has only the fields that the algorithm needs.
    """
    behaviour, ref = tensors["behaviour_logp"], tensors["ref_logp"]
    between = {"proximal_logp": 0.5, "start_logp": 0.3, "precedent_logp": 0.8}
    mixtures = {k: behaviour + share * (ref - behaviour) for k, share in between.items()}
    tensors = mixtures | tensors
    leaves = {k: tensors[k].clone().requires_grad_(True) for k in ("logp", "new_values")}
    values = tensors.get("values", tensors["new_values"])
    starts = torch.arange(values.shape[1]) % 3 != 1  # steps of two tokens and of one
    tensors["step_values"] = values.masked_fill(~starts, torch.nan)
    mask = padded(tensors["logp"], lengths, *layout)[1]
    tensors = {k: padded(v, lengths, *layout, padding)[0] for k, v in {**tensors, **leaves}.items()}
    order = torch.arange(len(mask)) if order is None else order
    keep = torch.ones(len(mask), dtype=torch.bool) if keep is None else keep
    needs = algorithm.needs
    needed = {
        "behaviour_logp": needs.behaviour,
        "ref_logp": needs.reference,
        "policy_logp": needs.policy,
        "values": needs.critic != "none",
        "step_values": needs.step_values,
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
        rollout_logp=tensors["behaviour_logp"][order].detach(),
        **{k: tensors[k][order].detach() for k, is_needed in needed.items() if is_needed},
    )
    held = {
        "policy": "start_logp",
        "average": "proximal_logp",
        "precedent": "precedent_logp",
        "reference": "ref_logp",
        "dpo": "precedent_logp",
    }
    batch = algorithm.before_batch(batch, lambda name: tensors[held[name]][order].detach(), id)
    batch = algorithm.before_step(batch, lambda name: tensors[held[name]][order].detach())
    lacking = [key for key, is_needed in needed.items() if not is_needed]
    lacking += ["q0"] if needs.initial_value == "none" else []
    with naming(lacking):
        batch = algorithm.prepare(batch)
    kept = batch.keep.nonzero().flatten()
    batch = batch.only_kept()
    total, sums = 0.0, Counter()
    for rows in torch.arange(len(kept)).split(cut or len(kept)):
        index = order[kept[rows]]
        logp, values = tensors["logp"][index], tensors["new_values"][index]
        output = PolicyOutput(logp=logp, entropy=logp, values=values)
        with naming(lacking):
            loss, found = algorithm.loss(output, batch.rows(rows))
        total = total + loss
        sums.update({name: float(value) for name, value in found.items()})
    total.backward()
    return total.detach(), leaves["logp"].grad, leaves["new_values"].grad, dict(sums)


def fresh(tensors):
    """The same tensors for fresh responses, before the update."""
    its_own = ("behaviour_logp", "policy_logp", "start_logp")
    return tensors | dict.fromkeys(its_own, tensors["logp"])


def current(tensors):
    """The same tensors before the update of this batch, as in training."""
    return {**tensors, "policy_logp": tensors["logp"]}
