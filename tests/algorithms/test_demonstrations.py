"""SFT: the mean log-likelihood of the accepted responses alone."""

import pytest
import torch

from algorithms.base import Batch, Options, PolicyOutput
from algorithms.demonstrations import SFT


def test_only_accepted_responses_are_imitated():
    logp = torch.tensor([[-1.0, -2.0], [-5.0, 0.0], [-3.0, -7.0]])
    mask = torch.tensor([[True, True], [True, False], [True, True]])
    keep = torch.ones(3, dtype=torch.bool)
    batch = Batch(mask, torch.tensor([1.0, 1.0, 0.0]), keep, keep, group_size=3)
    sft = SFT(Options(), reward_high=1.0)
    batch = sft.prepare(batch)
    assert batch.keep.tolist() == [True, True, False]
    loss, _ = sft.loss(PolicyOutput(logp=logp[:2], entropy=logp[:2]), batch.only_kept())
    assert loss.item() == pytest.approx((1 + 2 + 5) / 3)


def test_it_needs_nothing_and_learns_from_any_program():
    needs = SFT(Options(), 1.0).needs
    assert needs.off_policy
    assert not (needs.reference or needs.groups or needs.behaviour)
    assert needs.critic == needs.initial_value == "none"
