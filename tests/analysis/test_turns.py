"""Metrics of conversations, by hand and against all draws."""

from itertools import combinations

import pandas as pd
import pytest

from analysis.turns import TurnPlan, count_conversations, one_of, turn_scores
from tests.analysis.test_counts import SIX

PLAN = TurnPlan(turns=3, answers=(3, 6), budgets=(5, 20))


def scores_of(rows, turns, plan=PLAN):
    return turn_scores(count_conversations(pd.DataFrame(rows), turns), plan)


def single(name, scores):
    (value,), (weight,) = scores[name].values, scores[name].weights
    return pytest.approx(value), weight


def test_each_metric_of_six_conversations():
    scores = scores_of(SIX, 3)
    assert set(scores) == set(PLAN.metrics())
    assert single("solved_in_1", scores) == (2 / 6, 1)
    assert single("solved_in_2", scores) == (2 / 6, 1)
    assert single("solved_in_3", scores) == (3 / 6, 1)
    assert single("n@3", scores) == (3 / 6, 1)  # one conversation
    assert single("n@6", scores) == (1 - 3 / 15, 1)  # two: 3 of 15 pairs have no right one
    assert single("1@3", scores) == (3 / 6, 1)
    # Of two, the four that pass the public tests (three are right) go first: of 15 pairs, the one
    # without any is the broken and the left one, neither right.
    assert single("1@6", scores) == (14 / 15 * 3 / 4, 1)
    # Three first answers: two of six pass the public tests, one of them right; of 20 draws four
    # have neither, and then one of the other four is right.
    assert single("first_1@3", scores) == (16 / 20 * 1 / 2 + 4 / 20 * 1 / 4, 1)
    assert single("first_1@6", scores) == (1 / 2, 1)
    assert single("mended", scores) == (2 / 4, 4)
    assert single("mended_shown", scores) == (2 / 4, 4)
    assert single("left", scores) == (2 / 4, 4)
    assert single("kept", scores) == (1 / 2, 2)
    assert single("broken", scores) == (1 / 2, 2)
    assert single("other_text", scores) == (3 / 4, 4)
    assert single("other_form", scores) == (2 / 4, 4)
    assert single("false_stop", scores) == (1 / 6, 1)
    # 5 tokens: the first is the right one of 5 tokens; no other two fit.
    assert single("solved_in_5_tokens", scores) == (1 / 6, 1)


def test_single_samples_have_what_can_be_held_against_conversations():
    names = ["step", "problem", "verdict", "program", "tokens"]
    frame = pd.DataFrame(SIX)[names]
    scores = turn_scores(count_conversations(frame, 1), PLAN)
    expected = {"solved_in_1", "n@3", "n@6", "solved_in_5_tokens", "solved_in_20_tokens"}
    assert set(scores) == expected
    assert single("n@3", scores) == (1 - 1 / 20, 1)  # three of six, three right
    assert single("n@6", scores) == (1, 1)


@pytest.mark.parametrize("drawn", [1, 2, 3, 5])
def test_one_of_several_is_the_mean_over_all_draws(drawn):
    # (passes the public tests, is right)
    ones = [(True, True), (True, False), (True, False), (False, True), (False, False)]
    chances = []
    for draw in combinations(ones, drawn):
        candidates = [right for passed, right in draw if passed] or [right for _, right in draw]
        chances.append(sum(candidates) / len(candidates))
    assert one_of(5, 2, 3, 1, drawn) == pytest.approx(sum(chances) / len(chances))


def test_one_of_more_than_there_are_is_refused():
    with pytest.raises(ValueError, match="4 of 3 conversations"):
        one_of(3, 1, 1, 1, 4)
