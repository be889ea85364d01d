"""Signals: an optimiser step is not cut in two."""

import signal

import pytest

from experiments.run_dir import interrupts


@pytest.fixture(autouse=True)
def handlers():
    before = {sent: signal.getsignal(sent) for sent in (signal.SIGINT, signal.SIGTERM)}
    interrupts.raise_interrupts()
    yield
    for sent, handler in before.items():
        signal.signal(sent, handler)


def test_an_interrupt_waits_for_the_end_of_the_block():
    done = False
    with pytest.raises(KeyboardInterrupt), interrupts.defer_interrupts():
        signal.raise_signal(signal.SIGTERM)
        done = True
    assert done


def test_a_second_interrupt_does_not_wait():
    with pytest.raises(KeyboardInterrupt), interrupts.defer_interrupts():
        signal.raise_signal(signal.SIGINT)
        signal.raise_signal(signal.SIGINT)
        raise AssertionError("the second one was held back too")
    with interrupts.defer_interrupts():
        pass  # nothing is left waiting


def test_outside_a_block_it_comes_at_once():
    with pytest.raises(KeyboardInterrupt):
        signal.raise_signal(signal.SIGINT)


def test_a_signal_that_is_switched_off_stays_so():
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    interrupts.raise_interrupts()
    signal.raise_signal(signal.SIGINT)
