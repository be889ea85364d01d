"""Curves of GRPO here and in TRL: the comparison itself, and the runs that it compares."""

import json

import numpy as np
import pytest

from envs.environment import JudgeStats
from envs.problem import Judgement, Verdict
from experiments.benchmarks.peers import curves
from experiments.benchmarks.peers.curves import Options, differences, main, our_rewards, verdict
from experiments.benchmarks.peers.trl import reward_function
from experiments.benchmarks.workload import BatchSize, MiniContests, model_config
from experiments.errors import UserError

STEPS, SIZE = 2, BatchSize(2, 2, 4)


class LengthJudge:
    """Pays for the parity of a response's length, and remembers what it judged."""

    version = "length"

    def __init__(self):
        self.stats, self.submissions = JudgeStats(), []

    def judge(self, submissions):
        self.submissions += submissions
        verdicts = [
            Verdict.ACCEPTED if len(each.response) % 2 else Verdict.WRONG_ANSWER
            for each in submissions
        ]
        return [Judgement(one, one is Verdict.ACCEPTED, 1, 1, "") for one in verdicts]


@pytest.fixture(scope="module")
def mini():
    return MiniContests.load(model_config("nano"), SIZE, batches=STEPS)


def test_the_interval_is_students_over_the_seeds_of_each_part():
    ours = np.array([[0.0, 0.0, 0.4, 0.4], [0.0, 0.0, 0.2, 0.2]])
    whole, late = differences(ours, np.zeros((2, 4)))
    assert (whole.mean, late.mean) == pytest.approx((0.15, 0.3))
    assert (whole.error, late.error) == pytest.approx((0.05, 0.1))
    quantile = 25.4517  # of Student's t with one degree of freedom at 1 − 0.05/2/2
    assert (late.low, late.high) == pytest.approx((0.3 - 0.1 * quantile, 0.3 + 0.1 * quantile))


def test_a_difference_in_the_second_half_is_told_and_equal_curves_are_not():
    draw = np.random.default_rng(0)
    ours, theirs = draw.normal(0.5, 0.02, (2, 4, 20))
    assert verdict(differences(ours, theirs)).startswith("Within noise")
    theirs[:, 10:] += 0.1
    text = verdict(differences(ours, theirs))
    assert text.startswith("NOT within noise")
    assert "second half -0.1" in text


def test_equal_learners_are_told_apart_in_at_most_one_of_twenty_comparisons():
    draw = np.random.default_rng(1)
    told = [
        not all(each.within_noise for each in differences(*draw.normal(size=(2, 3, 20))))
        for _ in range(1000)
    ]
    assert 0.01 < np.mean(told) < 0.05 + 3 * (0.05 * 0.95 / 1000) ** 0.5


def test_curves_without_any_reward_are_no_agreement():
    with pytest.raises(UserError, match="every step's mean reward is 0: there is nothing"):
        differences(np.zeros((2, 4)), np.zeros((2, 4)))


def test_each_step_takes_its_own_problems_and_a_seed_repeats_its_run(mini):
    assert len(mini.prompted) == STEPS * SIZE.prompts
    judge = LengthJudge()
    first = our_rewards(mini, mini.prompted, judge, 1e-4, seed=0)
    asked = [each.problem.name for each in judge.submissions]
    names = [prompt.problem.name for prompt in mini.prompted]
    assert asked == [name for name in names for _ in range(SIZE.responses)]
    assert len(first) == STEPS
    assert our_rewards(mini, mini.prompted, LengthJudge(), 1e-4, seed=0) == first
    seeds = [our_rewards(mini, mini.prompted, LengthJudge(), 1e-4, seed) for seed in (1, 2)]
    assert any(each != first for each in seeds)


def test_rewards_for_trl_are_of_the_problem_that_its_row_names(mini):
    judge, seen = LengthJudge(), []
    rewards = reward_function(mini, mini.prompted, judge, lambda *both: seen.append(both))
    paid = rewards(completions=["x", "yy"], completion_ids=[[5], [6, 7]], problem=[3, 1])
    assert paid == [1.0, 0.0]
    assert seen == [([[5], [6, 7]], paid)]
    asked = [each.problem for each in judge.submissions]
    assert asked == [mini.prompted[3].problem, mini.prompted[1].problem]


def test_the_page_has_every_step_of_both_and_the_verdict(tmp_path, capsys):
    ours, theirs = np.random.default_rng(2).random((2, 3, 4))
    curves.finish(ours, theirs, tmp_path, model="nano")
    page = (tmp_path / "curves.md").read_text()
    rows = [line for line in page.splitlines() if line.startswith("| ") and " ± " in line]
    assert [int(row.split("|")[1]) for row in rows] == [1, 2, 3, 4]
    last = ours[:, 3]
    assert f"{last.mean():.3f} ± {last.std(ddof=1) / 3**0.5:.3f}" in rows[-1]
    result = json.loads((tmp_path / "curves.json").read_text())
    assert result["ours"] == ours.tolist()
    assert result["verdict"] in page
    assert result["verdict"] in capsys.readouterr().out


def test_without_trl_it_says_what_to_install(tmp_path, monkeypatch):
    monkeypatch.setattr(curves, "trl_is_installed", lambda: False)
    with pytest.raises(UserError, match=r"TRL 1.16.0 is not installed; pip install -e '\.\[peer\]"):
        main(Options(out=tmp_path))


def test_both_are_trained_from_the_same_model(tmp_path):
    pytest.importorskip("trl", reason="TRL is not installed (pip install trl==1.16.0)")
    sizes = {"prompts": 4, "group": 4, "max_tokens": 32, "reward": "shaped"}
    main(Options(steps=STEPS, seeds=2, out=tmp_path, **sizes))
    result = json.loads((tmp_path / "curves.json").read_text())
    for whose in ("ours", "TRL's"):
        assert np.shape(result[whose]) == (2, STEPS)
