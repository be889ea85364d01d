"""Synthetic run folders, as the tests of analysis/ have them."""

from tests.analysis.conftest import add_further as add_further
from tests.analysis.conftest import make_run as make_run
