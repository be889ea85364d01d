"""Metrics of conversations, by hand and against all draws."""

from collections import Counter
from itertools import combinations, product

import pandas as pd
import pytest

from analysis.conversations import count_conversations
from analysis.turns import TurnPlan, one_of, turn_scores
from tests.analysis.conversations import conversation
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


def test_a_problem_without_what_a_share_is_of_does_not_count():
    rows = [
        *(conversation("R", "R", ["a"], [1], problem="b", sample=i) for i in range(3)),
        *(conversation("wR", "wR", ["a", "b"], [1, 1], problem="a", sample=i) for i in range(2)),
        conversation("ww", "ww", ["a", "a"], [1, 1], problem="c"),
    ]
    scores = scores_of(rows, 2, TurnPlan(2, (4,)))
    assert scores["mended"].problems.tolist() == ["a", "c"]
    assert scores["mended"].values.tolist() == [1, 0]
    assert scores["mended"].weights.tolist() == [2, 1]
    assert scores["mended"].mean() == pytest.approx(2 / 3)
    assert scores["kept"].problems.tolist() == ["b"]
    assert scores["n@4"].problems.tolist() == ["a", "b"]  # c has a single conversation


def test_where_feedback_is_ignored_one_submission_of_equal_answers_is_a_tie():
    """Answers that pass both tests, only the public ones, or none, independent of the others.

    Three single answers with three submissions solve more; with one submission, as many.
    """
    share = {"R": 3, "P": 2, "w": 5}  # of ten answers

    def drawn(kinds):
        stop = next((i for i, kind in enumerate(kinds) if kind != "w"), 2) + 1
        hidden = "".join("R" if kind == "R" else "w" for kind in kinds[:stop])
        public = "".join("w" if kind == "w" else "R" for kind in kinds[:stop])
        return conversation(hidden, public, ["a"] * stop, [1] * stop)

    weights = Counter()
    for kinds in product(share, repeat=3):
        weights[kinds] = share[kinds[0]] * share[kinds[1]] * share[kinds[2]]
    rows = [drawn(kinds) for kinds, count in weights.items() for _ in range(count)]
    scores = scores_of([row | {"sample": i} for i, row in enumerate(rows)], 3)
    chance = 3 / 10 * (1 + 5 / 10 + 25 / 100)
    assert scores["1@3"].values == pytest.approx([chance])
    assert scores["first_1@3"].values == pytest.approx([chance], abs=0.001)  # without replacement


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
