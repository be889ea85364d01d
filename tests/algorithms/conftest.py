"""What several files of this folder are given."""

import pytest

from tests.algorithms import tabular


@pytest.fixture
def world():
    return tabular.world()
