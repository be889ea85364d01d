"""Rank correlation between sizes: known, reversed and random orders, and pairs that invert."""

import json
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from scipy.stats import kendalltau

from analysis.comparisons import paired_differences
from analysis.metrics import ScoreGrid
from analysis.ranks import kendall, rank_table
from analysis.results import main, results_of

NAMES = ("sft", "raft", "spo", "ppo", "grpo")
FIRST = np.array([0.1, 0.2, 0.3, 0.4, 0.5])


def group(label, values):
    seeds, problems = (tuple(range(n)) for n in values.shape)
    names = tuple(f"p{i:03}" for i in problems)
    scores = ScoreGrid(seeds, names, values, np.ones_like(values))
    return SimpleNamespace(label=label, seeds=seeds, grids={"pass@1": scores})


def ranks(means, seeds=3, noise=0.05):
    """The table of these algorithms' means by size, with noise of problems and responses."""
    random = np.random.default_rng(3)
    groups = [
        group(f"{name}_{size}", mean + random.normal(0, noise, (seeds, 100)))
        for size, of_size in means.items()
        for name, mean in zip(NAMES, of_size, strict=True)
    ]
    groups.append(group("alone", np.ones((seeds, 100))))  # no size in its name
    return rank_table(groups, paired_differences(groups, ["pass@1"]))


@pytest.mark.parametrize(
    ("second", "tau", "inverted"),
    [
        (FIRST, 1, ""),
        (FIRST[::-1], -1, None),
        (FIRST[[1, 0, 2, 3, 4]], 0.8, "raft/sft*"),  # 9 of 10 pairs in the same order
    ],
)
def test_a_known_order_has_its_tau_and_the_pairs_that_invert(second, tau, inverted):
    """10m follows 9m, as a number; the interval has no width where nothing is in doubt."""
    row = ranks({"10m": second, "9m": FIRST}).iloc[0]
    assert (row["from"], row["to"], row["algorithms"]) == ("9m", "10m", 5)
    assert [row["tau"], row["tau_low"], row["tau_high"]] == pytest.approx([tau] * 3)
    assert row["smaller"] == "grpo > ppo > spo > raft > sft"
    if inverted is None:
        assert len(row["inverted"].split(", ")) == 10
    else:
        assert row["inverted"] == inverted


def test_an_order_of_noise_is_not_decided_and_one_seed_has_no_interval():
    table = ranks({"1m": FIRST, "5m": np.full(5, 0.3), "15m": FIRST}, noise=0.3)
    assert list(table["to"]) == ["5m", "15m"]  # neighbours only
    assert ((table["tau_low"] < 0) & (table["tau_high"] > 0)).all()
    assert set(table["inverted"]) == {""}
    assert ranks({"1m": FIRST, "5m": FIRST}, seeds=1)["tau_low"].isna().all()
    assert ranks({"1m": FIRST}).empty


def test_tau_is_that_of_scipy_with_ties_too():
    random = np.random.default_rng(0)
    a, b = random.integers(0, 4, (2, 50, 5)).astype(float)
    expected = [kendalltau(x, y).statistic for x, y in zip(a, b, strict=True)]
    assert kendall(a, b) == pytest.approx(np.array(expected), nan_ok=True)


def test_a_page_has_the_ranks_of_sizes_with_problems_of_their_own(tmp_path, make_run, capsys):
    results_of.cache_clear()
    folder, arms = tmp_path / "study-s", []
    folder.mkdir()
    skills = {"ppo_1m": 1.0, "spo_1m": 7.0, "ppo_5m": 7.0, "spo_5m": 1.0}
    for arm, seed in ((arm, seed) for arm in skills for seed in (0, 1)):
        algo, _, size = arm.partition("_")
        of_size = {"config": {"model.name": size}, "info": {"data_hash": size}}
        run = make_run(tmp_path / size, algo, seed, problems=40, skill=skills[arm], **of_size)
        evals = pd.read_parquet(run / "evals.parquet")
        evals.assign(problem=size + evals["problem"]).to_parquet(run / "evals.parquet")
        run.rename(folder / f"{arm}-{seed}")
        head = {"arm": arm, "seed": seed, "trial": False, "status": "finished"}
        arms.append(head | {"run": f"{arm}-{seed}", "overrides": []})
    (folder / "arms.json").write_text(json.dumps(arms))
    (folder / "contrasts.json").write_text("[]")
    study = {"question": "?", "seeds": [0, 1], "arms": {arm: {} for arm in skills}}
    (tmp_path / "s.yaml").write_text(json.dumps(study | {"claims": []}))
    (tmp_path / "README.md").write_text("−1.000<!--= s; 1m - 5m; tau of pass@1; mean -->")
    page = tmp_path / "docs" / "results" / "study-s.md"
    page.parent.mkdir(parents=True)
    page.write_text("<!-- ranks -->\n\n<!-- end -->\n")
    assert main([f"root={tmp_path}", f"pack={folder}", f"study={tmp_path / 's.yaml'}"]) == 0
    assert main([f"root={tmp_path}", "write=true"]) == 0, capsys.readouterr().out
    cells = [cell.strip() for cell in page.read_text().split("|")]
    at = cells.index("pass@1")
    assert cells[at + 1 : at + 4] == ["−1.000 [−1.000, −1.000]", "spo > ppo", "ppo > spo"]
    assert cells[at + 4].startswith("spo/ppo")
