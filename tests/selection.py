"""Which cases of a table run in `make test`, and which only in `make test-slow`."""

from collections.abc import Collection

import pytest


def all_but_slow(cases: Collection[str], slow: Collection[str]) -> list:
    """Parameters of all cases; the `slow` ones, which take another's branches, are marked so."""
    assert set(slow) < set(cases), "a slow case that the table has not, or no fast one"
    return [pytest.param(case, marks=[pytest.mark.slow] * (case in slow)) for case in cases]
