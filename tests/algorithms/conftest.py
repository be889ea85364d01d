"""Fixtures of several files of this folder."""

import pytest

from tests.algorithms import tabular


@pytest.fixture
def world():
    return tabular.world()
