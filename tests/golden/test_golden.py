"""A few golden parts in the fast tests; `make golden` checks all of them."""

import json

import pytest

from tests.golden import __main__ as golden


@pytest.mark.parametrize("name", ["spo", pytest.param("ppo", marks=pytest.mark.slow)])
def test_a_run_of_five_steps_gives_the_recorded_numbers(name, tmp_path):
    found = golden.run(name, golden.RUNS[name], tmp_path)
    record = json.loads((golden.RECORDS / f"runs.{name}.json").read_text())
    assert not list(golden.compared(record, found))


def test_a_moved_number_is_a_difference():
    record = json.loads((golden.RECORDS / "runs.spo.json").read_text())
    moved = json.loads(json.dumps(record))
    moved["metrics"]["loss"][3] = float.hex(float.fromhex(moved["metrics"]["loss"][3]) * 1.01)
    assert list(golden.compared(record, moved))
    assert not list(golden.compared(record, record))
