"""Signals: an optimiser step is never interrupted half way."""

import signal
import subprocess
import sys

import pytest

from experiments.run_dir import interrupts


@pytest.fixture(autouse=True)
def handlers():
    before = {sent: signal.getsignal(sent) for sent in (signal.SIGINT, signal.SIGTERM)}
    interrupts.raise_interrupts()
    yield
    for sent, handler in before.items():
        signal.signal(sent, handler)


def test_an_interrupt_that_waits_says_so_at_once(capfd):
    with pytest.raises(KeyboardInterrupt), interrupts.defer_interrupts():
        signal.raise_signal(signal.SIGINT)
        assert capfd.readouterr().out == f"{interrupts.DEFERRED}\n"
    with pytest.raises(KeyboardInterrupt):
        signal.raise_signal(signal.SIGINT)
    assert capfd.readouterr().out == ""


def test_a_second_interrupt_does_not_wait():
    with pytest.raises(KeyboardInterrupt), interrupts.defer_interrupts():
        signal.raise_signal(signal.SIGINT)
        signal.raise_signal(signal.SIGINT)
        raise AssertionError("the second one was deferred too")
    with interrupts.defer_interrupts():
        pass  # nothing is pending


def test_a_process_that_leaves_at_once_says_how_to_resume():
    program = """
import signal
from experiments.run_dir.interrupts import exit_on_interrupt
exit_on_interrupt("the same command resumes")
signal.raise_signal(signal.SIGINT)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (130, "the same command resumes\n")
