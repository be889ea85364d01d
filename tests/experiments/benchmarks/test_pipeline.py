"""The model of the loop: exact where times are fixed, bounded where they are drawn."""

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest

from experiments.benchmarks.pipeline import Loop, fixed, lognormal, recorded, simulate

WRITE, JUDGE, TRAIN, SYNC, PIECES = 1.0, 0.5, 3.0, 0.25, 4
FIXED = Loop(fixed(WRITE), fixed(JUDGE), fixed(TRAIN), fixed(SYNC), pieces=PIECES)
DRAWN = Loop(lognormal(1, 1), lognormal(0.5, 2), lognormal(3, 0.5), fixed(0.25), pieces=8, lag=2)


def step_s(**changed):
    return simulate(replace(FIXED, **changed), 60).step_s


def test_in_turn_a_step_is_the_sum_of_its_parts():
    whole = PIECES * (WRITE + JUDGE) + TRAIN + SYNC
    assert step_s(overlap=False) == pytest.approx(whole)
    assert step_s(overlap=False, writers=2, judges=4) == pytest.approx(2 + JUDGE + TRAIN + SYNC)
    assert step_s(overlap=False, cores=1, lag=0) == pytest.approx(whole)


def test_judging_beside_writing_leaves_the_last_piece_or_the_first():
    assert step_s() == pytest.approx(PIECES * WRITE + JUDGE + TRAIN + SYNC)
    slow = step_s(judge=fixed(2.0))
    assert slow == pytest.approx(WRITE + PIECES * 2.0 + TRAIN + SYNC)


@pytest.mark.parametrize("lag", [0, 1, 2, 5])
@pytest.mark.parametrize(
    "changed",
    [{}, {"judge": fixed(2.0)}, {"train": fixed(9.0)}, {"writers": 2}, {"in_order": False}],
)
def test_with_a_lag_the_slowest_part_sets_the_pace(lag, changed):
    """Or, where the lag is too small for it, a batch's whole way over the batches under way."""
    loop = replace(FIXED, sync=fixed(0), lag=lag, **changed)
    write, judge, train = (draw(None) for draw in (loop.write, loop.judge, loop.train))
    writing = PIECES / loop.writers * write
    judging = PIECES * judge
    way = (writing + judge if write / loop.writers >= judge else write + judging) + train
    if "writers" in changed:
        way = writing + 2 * judge + train  # two pieces end together, and there is one judge
    pace = max(writing, judging, train, way / (1 + lag))
    assert simulate(loop, 60).step_s == pytest.approx(pace)


def test_on_one_core_a_lag_gains_nothing_and_on_two_it_does():
    work = PIECES * (WRITE + JUDGE) + TRAIN + SYNC
    for lag in (0, 3):
        assert step_s(lag=lag, cores=1) == pytest.approx(work, rel=0.02)
    assert work / 2 <= step_s(lag=3, cores=2) < 0.7 * work


def test_rare_syncs_cost_less_the_longer_they_take():
    often, rare = step_s(sync=fixed(10.0)), step_s(sync=fixed(10.0), sync_every=10)
    assert often == pytest.approx(4 + JUDGE + TRAIN + 10)
    # Nine of ten batches are written while others are trained on.
    assert rare == pytest.approx((10 * 4 + JUDGE + TRAIN + 10) / 10)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("queue", [1, 3, None])
@pytest.mark.parametrize("in_order", [True, False])
def test_nothing_is_lost_and_no_bound_is_broken(seed, queue, in_order):
    loop = replace(DRAWN, queue=queue, in_order=in_order, writers=3, sync_every=2)
    course = simulate(loop, 40, seed)
    assert course.trained == 40 * loop.pieces == len(course.lags)
    assert course.begun >= course.written >= course.judged >= course.trained
    assert course.begun - course.trained <= (loop.lag + loop.sync_every) * loop.pieces + 1
    assert course.written - course.judged <= (queue or 10**9) + loop.writers + loop.judges
    assert course.most_waiting <= (queue or 10**9)
    assert min(course.lags) >= 0
    if in_order:
        assert max(course.lags) <= loop.lag + loop.sync_every - 1
    assert all(0 < share <= 1 for share in course.shares(loop).values())
    again = simulate(loop, 40, seed)
    assert (again.ends, again.lags) == (course.ends, course.lags)


def test_without_lag_every_batch_is_written_by_the_newest_weights():
    assert set(simulate(replace(DRAWN, lag=0, writers=3), 20).lags) == {0}


@pytest.mark.parametrize("what", ["writers", "judges", "lag", "queue"])
def test_more_of_anything_never_slows_fixed_work(what):
    found = [step_s(judge=fixed(1.5), **{what: n}) for n in (1, 2, 4, 8)]
    assert all(more <= less + 1e-9 for less, more in pairwise(found))
    drawn = [
        np.mean([simulate(replace(DRAWN, **{what: n}), 60, seed).step_s for seed in range(3)])
        for n in (1, 4)
    ]
    assert drawn[1] <= 1.02 * drawn[0]


def test_draws_have_the_mean_and_the_spread_they_were_asked_for():
    random = np.random.default_rng(0)
    drawn = [lognormal(5.0, 0.5)(random) for _ in range(20000)]
    assert np.mean(drawn) == pytest.approx(5.0, rel=0.02)
    assert np.std(drawn) == pytest.approx(2.5, rel=0.05)
    assert lognormal(5.0, 0.0)(random) == 5.0
    assert {recorded([1.0, 2.0])(random) for _ in range(50)} == {1.0, 2.0}


def test_a_queue_too_short_for_a_whole_batch_is_refused():
    with pytest.raises(ValueError, match="queue=3 with overlap=False"):
        replace(FIXED, queue=3, overlap=False)
