"""The peak is of this run, not of the process's life."""

import numpy as np

from experiments.run_dir.ledger import PeakMemory

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
