"""Conversations as counts, their metrics and tables."""

from itertools import combinations, permutations

import pandas as pd
import pytest

from analysis.runs import load_run
from analysis.turns import (
    UNKNOWN,
    TurnPlan,
    count_conversations,
    counts_at,
    has_conversations,
    one_of,
    solved_within,
    turn_limit,
    turn_scores,
)
from tests.analysis.conversations import add_conversations, conversation

# Counts of conversations, written out by hand.

SIX = (
    conversation("R", "R", ["a = 1"], [5]),
    conversation("wR", "wR", ["a = 1", "a = 2"], [5, 6], sample=1),  # mended
    conversation("wwR", "wwR", ["a = 1", "b = 1", "c = 3"], [5, 5, 4], sample=2),  # at the third
    conversation("www", "www", ["a = 1", "a = 1", "a = 4"], [5, 5, 5], sample=3),  # left
    conversation("w", "R", ["print(0)"], [3], sample=4),  # a false stop
    conversation("Rww", "www", ["x", "a = (", "b = ("], [1, 2, 2], sample=5),  # broken
)
BROKEN_JUDGE = (
    conversation("iR", "wR", ["a", "b"], [1, 1], sample=6),
    conversation("wR", "iR", ["a", "b"], [1, 1], sample=7),
)


def test_every_column_of_a_problem_is_as_counted_by_hand():
    (row,) = count_conversations(pd.DataFrame([*SIX, *BROKEN_JUDGE]), 3).to_dict("records")
    assert row == {
        "step": 20,
        "problem": "p",
        "turns": 3,
        "conversations": 6,
        "solved": "2 2 3",  # the first answers of 0 and 5; 0 and 1; 0, 1 and 2
        "passed": 4,
        "false_stops": 1,
        "first_passed": 2,  # 0 and 4
        "first_passed_right": 1,
        "mended": 2,
        "broken": 1,
        "second": 4,
        "second_solved": 2,
        "other_text": 3,  # all but the fourth
        "other_form": 2,  # a = 1 and b = 1 have one form
        "right_tokens": "5 11 14",
        "wrong_tokens": "15 3 5",
    }


def test_a_sample_without_turns_is_a_conversation_of_one_answer():
    names = ["step", "problem", "verdict", "program", "tokens"]
    (row,) = count_conversations(pd.DataFrame(SIX)[names], 1).to_dict("records")
    assert (row["conversations"], row["solved"], row["second"]) == (6, "3", 0)
    assert row["passed"] == row["false_stops"] == UNKNOWN


def test_without_public_tests_nobody_knows_what_passed_them():
    one = conversation("w", "w", ["a = 1"], [5]) | {"turn_public": [""]}
    (row,) = count_conversations(pd.DataFrame([one]), 3).to_dict("records")
    assert row["passed"] == row["false_stops"] == row["first_passed"] == UNKNOWN
    assert (row["conversations"], row["solved"]) == (1, "0 0 0")


def test_the_limit_is_that_of_the_evaluations_and_survives_a_file(tmp_path, make_run):
    single = load_run(make_run(tmp_path, "spo", 0, problems=3, samples=4))
    assert (has_conversations(single), turn_limit(single)) == (False, 1)
    run = load_run(add_conversations(make_run(tmp_path, "ppo", 0, problems=3, samples=4)))
    assert (has_conversations(run), turn_limit(run)) == (True, 3)
    run.config["eval"]["turns"] = 4
    assert turn_limit(run) == 4
    counts = counts_at(run, 20)
    assert counts["conversations"].tolist() == [4, 4, 4]


# Metrics of conversations, by hand and against all draws.

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


# The solve rate within a token budget, against all orders of the conversations.


def by_orders(right, wrong, budget):
    """The share of orders in which a right one ends within the budget."""
    ones = [*((tokens, True) for tokens in right), *((tokens, False) for tokens in wrong)]
    solved = orders = 0
    for order in permutations(ones):
        orders += 1
        spent = 0
        for tokens, is_right in order:
            spent += tokens
            if is_right or spent > budget:
                break
        solved += is_right and spent <= budget
    return solved / orders


@pytest.mark.parametrize("budget", [0, 2, 3, 5, 8, 13, 21, 100])
def test_it_is_the_mean_over_all_orders(budget):
    for right, wrong in (([3, 5], [2, 8, 4, 4]), ([7], []), ([2, 2, 2], [1, 1]), ([9], [4, 30])):
        assert solved_within(right, wrong, budget) == pytest.approx(by_orders(right, wrong, budget))


def test_without_a_right_one_nothing_is_solved():
    assert solved_within([], [4], 9) == 0.0
    with pytest.raises(ValueError, match="no conversation"):
        solved_within([], [], 9)
