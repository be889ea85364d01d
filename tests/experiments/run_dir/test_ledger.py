"""Costs of a run: counts, time, operations, and its peak memory."""

import math
import time

import numpy as np
import pytest

from experiments.run_dir.ledger import UNKNOWN, Ledger, ModelFlops, PeakMemory, Text

# Time is charged once, to the innermost phase; operations token by token.

MODEL = ModelFlops(1000, 70, 300, 70, ((8, None), (8, 3)))
TEXTS = [Text(5, [4, 1, 0]), Text(2, [7])]


def resumed(ledger):
    again = Ledger(model=ledger.model)
    again.load_state_dict(ledger.state_dict())
    return again


def test_a_phase_inside_another_is_not_charged_twice_and_its_activity_is_shown():
    ledger = Ledger()
    with ledger.phase("train"):
        time.sleep(0.05)
        with ledger.phase("reference"):
            assert ledger.activity.text() == "scoring with the reference"
            time.sleep(0.2)
        assert ledger.activity.text() == "learning"
    assert ledger.seconds["reference"] >= 0.2
    assert ledger.seconds["train"] >= 0.05
    spent = ledger.seconds["train"] + ledger.seconds["reference"]
    assert spent == pytest.approx(ledger.columns()["time/total_s"], abs=0.05)


def test_work_in_parallel_to_the_loop_is_no_waiting():
    ledger = Ledger()
    with ledger.waiting("judge"):
        time.sleep(0.05)
    ledger.work("judge", 9.0)
    assert ledger.seconds["judge"] == 9.0
    assert 0.05 <= ledger.waited["judge"] <= ledger.columns()["time/total_s"]
    again = resumed(ledger)
    assert (again.seconds, again.waited) == (ledger.seconds, ledger.waited)


def test_recalled_judging_is_charged_once_also_after_resuming():
    ledger = Ledger()
    ledger.charge_recalled("judge", 3.0)
    ledger.charge_recalled("judge", 5.0)
    again = resumed(ledger)
    again.charge_recalled("judge", 5.0)
    again.charge_recalled("evaluate", 1.0)
    columns = again.columns()
    assert (columns["time/judge_s"], columns["time/waited_judge_s"]) == (5.0, 5.0)
    assert columns["time/charged_s"] == 6.0
    assert 6.0 <= columns["time/total_s"] < 60
    assert {"budget/generated_tokens", "time/judge_cpu_s", "memory/peak_mb"} <= columns.keys()


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


def test_known_tokens_are_seen_and_not_read_again():
    read, predicted = 2 + 3, 3  # after five known tokens the other two before the response
    pairs = attention(range(6, 11))
    assert MODEL.forward([Text(8, [3], 5)]) == 2 * (1000 * read + 70 * predicted) + pairs


def test_evaluations_and_engine_checks_are_not_charged():
    ledger = Ledger(model=MODEL)
    with ledger.phase("train"), ledger.phase("reference"):
        ledger.charge_generation(TEXTS)
    once = ledger.columns()["budget/flops"]
    assert once == MODEL.forward(TEXTS) == resumed(ledger).counts.flops
    for phase in ("evaluate", "sync"):
        with ledger.phase(phase), ledger.phase("reference"):
            ledger.charge_generation(TEXTS)
    assert ledger.columns()["budget/flops"] == once
    assert math.isnan(UNKNOWN.forward(TEXTS)) and math.isnan(UNKNOWN.backward(TEXTS))


# The peak is of this run, not of the process's life.

MIB = 2**20


def test_a_run_does_not_inherit_the_peak_of_the_one_before():
    first = PeakMemory()
    block = np.ones(300 * MIB // 8)
    high = first.columns()["memory/peak_mb"]
    del block
    assert first.columns()["memory/peak_mb"] > high - 5
    second = PeakMemory()
    assert second.columns()["memory/peak_mb"] < high - 200


def test_what_is_held_in_between_counts():
    memory = PeakMemory()
    before = memory.columns()["memory/peak_mb"]
    np.ones(100 * MIB // 8).sum()
    assert memory.columns()["memory/peak_mb"] > before + 90
