import sys
from types import SimpleNamespace

import numpy as np
import pytest

from analysis.stats.intervals import (
    interquartile_mean,
    performance_profile,
    probability_of_improvement,
)


def test_they_are_what_they_are_said_to_be():
    a, b = np.array([[0.5, 1.0], [0.5, 0.0]]), np.array([[0.5, 0.0], [0.0, 0.0]])
    # Problem 1: two ties and two wins of four; problem 2: two wins and two ties.
    assert probability_of_improvement(a, b) == 0.75
    assert interquartile_mean(np.array([[0.0, 1.0, 2.0, 9.0]])) == 1.5
    assert performance_profile(a, np.array([0.0, 0.5, 1.0])) == pytest.approx([0.75, 0.25, 0.0])


def test_the_last_bit_of_a_score_breaks_no_tie():
    a, b = np.array([[0.1 + 0.2, 0.3]]), np.array([[0.3, 0.1 + 0.2]])
    assert (a != b).all()
    assert probability_of_improvement(a, b) == probability_of_improvement(b, a) == 0.5


def test_what_was_not_measured_is_left_out():
    a, b = np.array([[0.5, np.nan], [np.nan, np.nan]]), np.array([[0.2, 0.3], [0.9, 0.3]])
    assert probability_of_improvement(a, b) == 0.5
    assert interquartile_mean(a) == 0.5
    assert np.isnan(probability_of_improvement(a[:, 1:], b[:, 1:]))


def test_they_equal_rliable(monkeypatch):
    # Its bootstrap alone needs arch, whose release for it cannot be imported beside pandas 3.
    bootstrap = SimpleNamespace(IIDBootstrap=object, IndependentSamplesBootstrap=object)
    monkeypatch.setitem(sys.modules, "arch", SimpleNamespace(bootstrap=bootstrap))
    monkeypatch.setitem(sys.modules, "arch.bootstrap", bootstrap)
    metrics = pytest.importorskip("rliable.metrics", reason="needs pip install rliable==1.2.0")
    library = pytest.importorskip("rliable.library")
    random = np.random.default_rng(0)
    for seeds, problems in ((2, 7), (3, 30), (5, 121)):
        a, b = (random.integers(0, 21, (seeds, problems)) / 20 for _ in range(2))
        expected = metrics.probability_of_improvement(a, b)
        assert probability_of_improvement(a, b) == pytest.approx(expected, abs=1e-9)
        assert interquartile_mean(a) == pytest.approx(metrics.aggregate_iqm(a), abs=1e-9)
        thresholds = np.linspace(0, 1, 41)
        expected = [library.run_score_deviation(a, tau) for tau in thresholds]
        assert performance_profile(a, thresholds) == pytest.approx(expected, abs=1e-9)
