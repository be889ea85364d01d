"""Time is charged once, to the innermost phase."""

import time

import pytest

from experiments.run_dir.ledger import Ledger


def test_a_phase_inside_another_is_not_charged_twice():
    ledger = Ledger()
    with ledger.phase("train"):
        time.sleep(0.05)
        with ledger.phase("reference"):
            time.sleep(0.2)
    assert ledger.seconds["reference"] >= 0.2
    assert ledger.seconds["train"] >= 0.05
    spent = ledger.seconds["train"] + ledger.seconds["reference"]
    assert spent == pytest.approx(ledger.columns()["time/total_s"], abs=0.05)


def test_what_is_done_beside_the_loop_is_no_waiting():
    ledger = Ledger()
    with ledger.waiting("judge"):
        time.sleep(0.05)
    ledger.work("judge", 9.0)
    assert ledger.seconds["judge"] == 9.0
    assert 0.05 <= ledger.waited["judge"] <= ledger.columns()["time/total_s"]
    again = Ledger()
    again.load_state_dict(ledger.state_dict())
    assert (again.seconds, again.waited) == (ledger.seconds, ledger.waited)


def test_what_was_recalled_is_charged_once_also_after_going_on():
    ledger = Ledger()
    ledger.charge_recalled("judge", 3.0)
    ledger.charge_recalled("judge", 5.0)
    again = Ledger()
    again.load_state_dict(ledger.state_dict())
    again.charge_recalled("judge", 5.0)
    again.charge_recalled("evaluate", 1.0)
    columns = again.columns()
    assert (columns["time/judge_s"], columns["time/waited_judge_s"]) == (5.0, 5.0)
    assert columns["time/charged_s"] == 6.0
    assert 6.0 <= columns["time/total_s"] < 60


def test_columns_are_named_by_what_they_depend_on():
    columns = Ledger().columns()
    assert {"budget/generated_tokens", "time/judge_s", "time/judge_cpu_s", "memory/peak_mb"} <= set(
        columns
    )
    assert all(name.split("/")[0] in ("budget", "time", "memory") for name in columns)
