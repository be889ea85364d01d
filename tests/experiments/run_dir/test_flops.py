"""Operations of passes, token by token, and their place in the budget."""

import math

import pytest

from experiments.run_dir.flops import UNKNOWN, ModelFlops, Text
from experiments.run_dir.ledger import Ledger

MODEL = ModelFlops(1000, 70, 300, 70, ((8, None), (8, 3)))
TEXTS = [Text(5, [4, 1, 0]), Text(2, [7])]


def attention(tokens, widths=((8, None), (8, 3))):
    """Operations of a token at each of these positions, which sees those before it and itself."""
    seen = [(width, min(t, window or t)) for t in tokens for width, window in widths]
    return sum(2 * 2 * width * count for width, count in seen)


def test_a_prompt_is_read_once_and_each_response_whole():
    read, predicted = 4 + 5 + 1 + 7, 5 + 7
    pairs = attention([1, 2, 3, 4]) + attention([5, 6, 7, 8]) + attention([5])
    pairs += attention([1]) + attention(range(2, 9))
    assert MODEL.forward(TEXTS) == 2 * (1000 * read + 70 * predicted) + pairs
    gradients = 2 * (1000 * read + 70 * predicted) + 2 * (300 * read + 70 * predicted)
    assert MODEL.backward(TEXTS) == gradients + 2 * pairs


def test_what_was_read_before_is_seen_and_not_read_again():
    read, predicted = 2 + 3, 3  # after five known tokens the other two before the response
    pairs = attention(range(6, 11))
    assert MODEL.forward([Text(8, [3], 5)]) == 2 * (1000 * read + 70 * predicted) + pairs


def test_evaluations_and_engine_checks_are_not_charged():
    ledger = Ledger(model=MODEL)
    with ledger.phase("train"), ledger.phase("reference"):
        ledger.charge_generation(TEXTS)
    once = ledger.columns()["budget/flops"]
    assert once == MODEL.forward(TEXTS)
    for phase in ("evaluate", "sync"):
        with ledger.phase(phase), ledger.phase("reference"):
            ledger.charge_generation(TEXTS)
    assert ledger.columns()["budget/flops"] == once


def test_counting_resumes_and_not_in_the_middle_of_a_run():
    ledger = Ledger(model=MODEL)
    ledger.charge_flops(1e20 + 1)
    state = ledger.state_dict()
    again = Ledger(model=MODEL)
    again.load_state_dict(state)
    assert again.counts == ledger.counts
    del state["counts"]["flops"]  # of a version that did not count them
    again.load_state_dict(state)
    again.charge_flops(1.0)
    assert math.isnan(again.columns()["budget/flops"])


@pytest.mark.parametrize("count", [UNKNOWN.forward, UNKNOWN.backward])
def test_a_model_that_is_not_counted_has_no_number(count):
    assert math.isnan(count(TEXTS))
