"""Near-duplicate statements are found, different ones are not; shown on real rows too."""

import os
from pathlib import Path

import pytest

from envs.problem import Problem, Test
from envs.tasks.near_duplicates import shingles, similar_pairs
from envs.tasks.storage.rows import load_problems
from tests.envs.tasks.dataset_rows import converter_of

DATA = Path(os.environ.get("SPO_BENCH_DATA") or Path(__file__).parents[4] / "shared" / "data")
TREE = (
    "You are given a tree with n vertices. Each edge is red or black. Count the sequences of k "
    "vertices that are good, where a sequence is good if the path through it has a black edge."
)
SUM = "Given two integers a and b on one line of the input, print the value of their sum and stop."


def problem(name, statement):
    return Problem(name, statement, (), (Test("1\n", "1\n"),))


def test_layout_case_and_samples_do_not_hide_a_duplicate():
    shouted = TREE.upper().replace(" ", "\n") + "\n\nExamples\n\n3 4\n1 2 0\n"
    pairs = similar_pairs([problem("a", shouted), problem("b", SUM)], [problem("t", TREE)])
    assert [(pair["train"], pair["test"]) for pair in pairs] == [("a", "t")]
    assert pairs[0]["similarity"] > 0.9


def test_different_problems_are_no_pair():
    assert similar_pairs([problem("a", SUM)], [problem("t", TREE)]) == []


def test_a_statement_without_words_is_no_pair():
    assert shingles("??") == frozenset()
    assert similar_pairs([problem("a", "")], [problem("t", "")]) == []


@pytest.mark.skipif(not DATA.is_dir(), reason=f"no data rows in {DATA}")
def test_real_rows_of_two_data_sets_overlap():
    ours, _ = load_problems(converter_of("code_contests"), DATA / "code_contests_test.jsonl")
    theirs, _ = load_problems(converter_of("taco"), DATA / "taco_stdin.jsonl")
    pairs = similar_pairs(ours, theirs)
    found = {pair["train"] for pair in pairs}
    assert "code_contests/1575_J. Jeopardy of Dropped Balls" in found
    assert all(pair["similarity"] > 0.5 for pair in pairs)
