"""Ties are settled, by chance that hangs on the responses alone; equal ones go by their place."""

import torch

from algorithms.tensors import lots, places
from tests.algorithms.pulls import make, pull


def test_places_go_by_key_then_lot_then_row():
    key = torch.tensor([[1.0, 2.0, 1.0, 2.0, 0.0, 2.0]])
    lot = torch.tensor([[0.3, 0.1, 0.7, 0.1, 0.9, 0.5]])
    kept = torch.tensor([[True, True, True, True, True, False]])
    assert places(key, lot, kept).tolist() == [[3, 0, 2, 1, 4, 0]]


def test_a_lot_hangs_on_the_response_alone():
    logp = -torch.rand(6, 4, dtype=torch.float64)
    mask = torch.arange(4) < torch.tensor([4, 2, 3, 1, 4, 2]).unsqueeze(-1)
    found = lots(logp.masked_fill(~mask, float("nan")), mask)
    assert ((found >= 0) & (found < 1)).all()
    order = torch.randperm(6)
    assert torch.equal(lots(logp[order], mask[order]), found[order])


def test_equal_responses_do_not_all_stay_where_some_are_to_go():
    logp = torch.full((12, 3), -1.0, dtype=torch.float64)
    names = ("logp", "behaviour_logp", "ref_logp", "values", "new_values", "entropy")
    rewards = torch.tensor([1.0, 1.0, 0.0, 0.0] * 3, dtype=torch.float64)
    case = (dict.fromkeys(names, logp), torch.full((12,), 3), rewards)
    for name, left in (("cppo", 2), ("pf_ppo", 2)):
        moved = (pull(make(name, kl_coef=0.0), case)[1] != 0).any(-1)
        assert moved[:8].view(2, 4).sum(-1).tolist() == [left, left], name
