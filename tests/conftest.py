"""What all tests share."""

import signal

import pytest


@pytest.fixture(scope="session", autouse=True)
def interrupts_arrive():
    """A shell starts background jobs with SIGINT ignored, and children inherit that."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)
