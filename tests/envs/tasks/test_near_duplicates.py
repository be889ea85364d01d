"""Near-duplicate statements are found, different ones are not; shown on real rows too."""

import random

import pytest

from envs.problem import Problem, Test
from envs.tasks.dataset import shingles, similar_pairs
from tests.envs.tasks.dataset_rows import DATA, load_problems, needs_data

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
    assert [(pair["problem"], pair["other_problem"]) for pair in pairs] == [("a", "t")]
    assert pairs[0]["similarity"] > 0.9


def test_different_problems_are_no_pair():
    assert similar_pairs([problem("a", SUM)], [problem("t", TREE)]) == []


STORY = " ".join(
    f"Ann counts {word} number {i} of her garden." for i, word in enumerate("abcdefgh" * 9)
)


@pytest.mark.parametrize(
    ("train", "test"), [(f"{STORY} {TREE} {STORY}", TREE), (TREE, f"{STORY} {TREE}")]
)
def test_a_statement_inside_a_longer_one_is_found(train, test):
    (pair,) = similar_pairs([problem("a", train)], [problem("t", test)])
    assert (pair["problem"], pair["other_problem"]) == ("a", "t")
    assert pair["similarity"] < 0.2  # the Jaccard similarity does not show it
    assert pair["containment"] == 1


def test_a_short_phrase_inside_a_statement_is_no_pair():
    phrase = "Print the value of their sum and stop."
    assert similar_pairs([problem("a", SUM)], [problem("t", phrase)]) == []


def is_duplicate(one, other):
    if not one & other:
        return False
    smaller = min(len(one), len(other))
    contained = smaller >= 16 and len(one & other) / smaller >= 0.7
    return contained or len(one & other) / len(one | other) >= 0.5


def test_every_pair_is_found():
    """Compared with every pair of random texts over few words, which share many 5-grams."""
    rng = random.Random(0)
    texts = [" ".join(rng.choices("ab", k=rng.randint(5, 60))) for _ in range(120)]
    train, test = (
        [problem(str(i), text) for i, text in enumerate(part)] for part in (texts, texts[::2])
    )
    found = {(pair["problem"], pair["other_problem"]) for pair in similar_pairs(train, test)}
    expected = {
        (a.name, b.name)
        for a in train
        for b in test
        if is_duplicate(shingles(a.statement), shingles(b.statement))
    }
    assert found == expected and len(train) < len(found) < len(train) * len(test) / 2


def test_a_statement_without_words_is_no_pair():
    assert shingles("??") == frozenset()
    assert similar_pairs([problem("a", "")], [problem("t", "")]) == []


@needs_data
def test_real_rows_of_two_data_sets_overlap():
    ours, _ = load_problems("code_contests", DATA / "code_contests_test.jsonl")
    theirs, _ = load_problems("taco", DATA / "taco_stdin.jsonl")
    pairs = similar_pairs(ours, theirs)
    found = {pair["problem"] for pair in pairs}
    assert "code_contests/1575_J. Jeopardy of Dropped Balls" in found
    assert all(max(pair["similarity"], pair["containment"]) >= 0.5 for pair in pairs)
