"""The mark of tests that need Ray."""

from importlib.util import find_spec

import pytest

needs_ray = pytest.mark.skipif(
    find_spec("ray") is None, reason="Ray is not installed; pip install -e '.[ray]'"
)
