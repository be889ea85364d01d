"""The anatomy: cosines of gradients, and the page that it writes of two objectives."""

import math

import pandas as pd
import pytest
import torch

from experiments import anatomy


def test_cosines_are_those_of_torch_and_unknown_for_no_gradient():
    vectors = [*torch.randn(3, 100), torch.zeros(100)]
    found = anatomy.cosines(vectors, chunk=30)
    expected = torch.nn.functional.cosine_similarity(vectors[0], vectors[1], dim=0)
    assert found[0, 1].item() == pytest.approx(expected.item(), abs=1e-6)
    assert found[3].isnan().all()


@pytest.mark.slow
def test_the_page_and_its_cosines(tmp_path, monkeypatch):
    monkeypatch.setattr(anatomy, "STAGES", {"base": 0, "half-trained": 10})
    monkeypatch.setattr(anatomy, "PROMPTS", 4)
    options = anatomy.Options(
        tmp_path / "page.md", tmp_path / "outputs", "raft,rloo,remix,ppo_ewma"
    )
    anatomy.main(options)
    rows = pd.read_csv(tmp_path / "page.csv").set_index(["situation", "objective"])
    assert rows.loc[("base, fresh", "raft"), "rejected"] == 0
    assert rows.loc[("base, fresh", "raft"), "cos raft"] == pytest.approx(1)
    # RLOO is not made for old responses
    assert pd.isna(rows.loc[("base, stale", "rloo"), "cos raft"])
    assert "| raft" in (tmp_path / "page.md").read_text()


@pytest.mark.parametrize("p", [0.1, 0.5, 0.9])
def test_the_weight_of_a_prompt_by_its_success_rate(p):
    n = anatomy.RATE_GROUP
    expected = {"rloo": n / (n - 1), "maxrl": 1 / p, "spo": 1 / (1 - p)}
    expected["grpo"] = math.sqrt((n - 1) / n / (p * (1 - p)))
    found = {name: anatomy.prompt_weight(name, p) for name in anatomy.BY_RATE}
    assert found == pytest.approx(expected, rel=1e-4)
