"""The page's areas are the protocol's score of each run, and a seed without one stays blank."""

import re

import pytest

from analysis.budgets import curve_score
from analysis.runs import load_run
from experiments.studies.area_section import area_section


@pytest.fixture
def runs(tmp_path, make_run):
    rows = []
    for arm, skill in (("ppo", 1.0), ("spo", 8.0)):
        for seed in (0, 1):
            path = make_run(tmp_path, arm, seed, skill=skill)
            rows.append({"arm": arm, "seed": seed, "run": str(path)})
    return tmp_path / "compare", [row | {"status": "finished", "trial": False} for row in rows]


def cells(page):
    return [[c.strip() for c in line.split("|")[1:-1]] for line in page.splitlines() if "|" in line]


def test_each_arm_has_the_score_of_its_seeds_the_best_first(runs):
    folder, rows = runs
    (page,) = area_section(lambda name: load_run(folder / name), rows, ["ppo", "spo"], [0, 1])
    first, second = cells(page)[2:]
    scores = [curve_score(load_run(folder / f"spo-{seed}")) for seed in (0, 1)]
    gap = abs(scores[0] - scores[1]) / 2  # two values: their standard error
    assert first == ["spo", *(f"{x:.3f}" for x in (sum(scores) / 2, gap, *scores))]
    assert second[0] == "ppo"
    assert float(second[1]) < float(first[1])


def test_without_an_evaluation_in_between_there_is_no_curve(tmp_path, make_run):
    path = make_run(tmp_path, "ppo", 0, every=20)
    row = {"arm": "ppo", "seed": 0, "run": str(path), "status": "finished", "trial": False}
    assert area_section(lambda name: load_run(path), [row], ["ppo"], [0]) == []


def test_what_has_no_score_is_blank_or_left_out(runs):
    folder, rows = runs
    rows[1]["status"] = "failed"
    rows[2]["trial"] = rows[3]["trial"] = True
    (page,) = area_section(lambda name: load_run(folder / name), rows, ["ppo", "spo"], [0, 1])
    (only,) = cells(page)[2:]
    assert only[0] == "ppo" and re.fullmatch(r"0\.\d{3}", only[3]) and only[2] == only[4] == "–"
    assert area_section(lambda name: load_run(folder / name), rows[2:], ["ppo"], [0, 1]) == []
