"""The solve rate within a token budget, against all orders of the conversations."""

from itertools import permutations

import pytest

from analysis.turns import solved_within


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


def test_by_hand():
    # Of 2 conversations the right one, of 5 tokens, is first in half of the orders; with 8 tokens
    # the wrong one, of 4, leaves too few for it, with 9 it does not.
    assert solved_within([5], [4], 8) == 0.5
    assert solved_within([5], [4], 9) == 1.0
    assert solved_within([], [4], 9) == 0.0
    with pytest.raises(ValueError, match="no conversation"):
        solved_within([], [], 9)


def test_equal_lengths_are_pass_at_k():
    # 20 conversations of 10 tokens, 3 of them right: a budget of 49 tokens is four tries.
    expected = 1 - (17 * 16 * 15 * 14) / (20 * 19 * 18 * 17)
    assert solved_within([10] * 3, [10] * 17, 49) == pytest.approx(expected)
