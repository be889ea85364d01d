"""Counts of conversations, written out by hand."""

import pandas as pd

from analysis.runs import load_run
from analysis.turns import UNKNOWN, count_conversations, counts_at, has_conversations, turn_limit
from tests.analysis.conversations import add_conversations, conversation

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
