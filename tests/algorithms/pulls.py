"""Loss and gradient of an objective on a ragged batch, split, with one group dropped; float64."""

import torch

import algorithms
from algorithms.base import Batch
from algorithms.tensors import masked_sum
from tests.algorithms.batches import current, fresh, gradient, raw

BETA = 0.3
KEEP = torch.arange(12) < 8  # the third group is dropped
OWN = torch.ones(12, dtype=torch.bool)
TOKEN = {"aggregate": "token_mean", "kl_coef": 0.0, "clip_high": 0.2}


def pull(algorithm, case, *, policies=current, **options):
    """(loss, gradient of the log-probs), in micro-batches of three rows.

    `policies` says which of the policies coincide: current, fresh or at_start.
    """
    tensors, lengths, rewards = case
    options = {"keep": KEEP, "online": OWN, "cut": 3} | options
    return gradient(algorithm, policies(tensors), lengths, rewards, **options)[:2]


def same(one, other, factor=1.0):
    torch.testing.assert_close(one, factor * other, rtol=1e-9, atol=1e-12)


def make(name, **options):
    return algorithms.make(name, **options)


def sums(case, key):
    """Each row's sum of log-probs."""
    tensors, lengths, _ = case
    mask = torch.arange(tensors[key].shape[1]) < lengths.unsqueeze(-1)
    return masked_sum(tensors[key], mask)


def at_start(tensors):
    """Policy, reference and behaviour policy coincide."""
    return {**fresh(tensors), "ref_logp": tensors["logp"]}


def pair_case(seed):
    tensors, lengths, rewards = raw(seed)
    return tensors, lengths, torch.tensor([1.0, 0.0] * 6).to(rewards)


def advantages(algorithm, rewards):
    kept = torch.ones(len(rewards), dtype=torch.bool)
    return algorithm.advantages(Batch(kept.unsqueeze(-1), rewards, kept, kept, len(rewards)))
