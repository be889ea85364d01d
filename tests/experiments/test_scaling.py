"""The model of the loop: exact where times are fixed, bounded where drawn; and its page."""

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest

pytest.importorskip("simpy")

from experiments import scaling
from experiments.scaling import Loop, Simulation, Time

WRITE, JUDGE, TRAIN, SYNC, PIECES = 1.0, 0.5, 3.0, 0.25, 4
FIXED = Loop(Time(WRITE), Time(JUDGE), Time(TRAIN), Time(SYNC), pieces=PIECES)
DRAWN = Loop(Time(1, 1), Time(0.5, 2), Time(3, 0.5), Time(0.25), pieces=8, lag=2)


def step_s(**changed):
    return Simulation(replace(FIXED, **changed)).run(60).step_s


def test_a_step_of_one_piece_is_the_sum_of_its_parts():
    assert step_s(pieces=1) == pytest.approx(WRITE + JUDGE + TRAIN + SYNC)
    assert step_s(slots=PIECES, judges=PIECES) == pytest.approx(WRITE + JUDGE + TRAIN + SYNC)


def test_judging_beside_writing_leaves_the_last_piece_or_the_first():
    assert step_s() == pytest.approx(PIECES * WRITE + JUDGE + TRAIN + SYNC)
    slow = step_s(judge=Time(2.0))
    assert slow == pytest.approx(WRITE + PIECES * 2.0 + TRAIN + SYNC)


@pytest.mark.parametrize("lag", [0, 1, 2, 5])
@pytest.mark.parametrize(
    "changed",
    [{}, {"judge": Time(2.0)}, {"train": Time(9.0)}, {"slots": 2}, {"in_order": False}],
)
def test_with_a_lag_the_slowest_part_sets_the_pace(lag, changed):
    """Or, where the lag is too small for it, a batch's whole way over the batches under way."""
    loop = replace(FIXED, sync=Time(0), lag=lag, **changed)
    write, judge, train = (time.mean for time in (loop.generate, loop.judge, loop.train))
    writing = PIECES / loop.slots * write
    judging = PIECES * judge
    way = (writing + judge if write / loop.slots >= judge else write + judging) + train
    if "slots" in changed:
        way = writing + 2 * judge + train  # two pieces end together, and there is one judge
    pace = max(writing, judging, train, way / (1 + lag))
    assert Simulation(loop).run(60).step_s == pytest.approx(pace)


def test_rare_syncs_cost_less_the_longer_they_take():
    often, rare = step_s(sync=Time(10.0)), step_s(sync=Time(10.0), sync_every=10)
    assert often == pytest.approx(4 + JUDGE + TRAIN + 10)
    # Nine of ten batches are written while others are trained on.
    assert rare == pytest.approx((10 * 4 + JUDGE + TRAIN + 10) / 10)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("in_order", [True, False])
def test_nothing_is_lost_and_no_bound_is_broken(seed, in_order):
    loop = replace(DRAWN, in_order=in_order, slots=3, sync_every=2)
    course = Simulation(loop, seed).run(40)
    assert len(course.lags) == 40 * loop.pieces
    assert course.begun >= course.generated >= course.judged >= len(course.lags)
    assert course.begun - len(course.lags) <= (loop.lag + loop.sync_every) * loop.pieces + 1
    assert min(course.lags) >= 0
    if in_order:
        assert max(course.lags) <= loop.lag + loop.sync_every - 1
    again = Simulation(loop, seed).run(40)
    assert (again.ends, again.lags) == (course.ends, course.lags)


def test_without_lag_every_batch_is_written_by_the_newest_weights():
    assert set(Simulation(replace(DRAWN, lag=0, slots=3)).run(20).lags) == {0}


@pytest.mark.parametrize("what", ["slots", "judges", "lag"])
def test_more_of_anything_never_slows_fixed_work(what):
    found = [step_s(judge=Time(1.5), **{what: n}) for n in (1, 2, 4, 8)]
    assert all(more <= less + 1e-9 for less, more in pairwise(found))
    drawn = [
        np.mean([Simulation(replace(DRAWN, **{what: n}), seed).run(60).step_s for seed in range(3)])
        for n in (1, 4)
    ]
    assert drawn[1] <= 1.02 * drawn[0]


def test_draws_have_the_mean_and_the_spread_they_were_asked_for():
    random = np.random.default_rng(0)
    drawn = [Time(5.0, 0.5).draw(random) for _ in range(20000)]
    assert np.mean(drawn) == pytest.approx(5.0, rel=0.02)
    assert np.std(drawn) == pytest.approx(2.5, rel=0.05)
    assert Time(5.0, 0.0).draw(random) == 5.0


def test_the_order_of_the_published_speed_ups_comes_out():
    loops = (loop for loop, _ in scaling.ladder(0.45).values())
    turn, one, ten, free = (Simulation(loop).run(scaling.LADDER_BATCHES).step_s for loop in loops)
    assert turn > 1.2 * one and one > 1.1 * ten and ten > 1.1 * free


def test_the_fit_reproduces_the_step_that_it_was_fitted_to():
    model = scaling.step_s(scaling.COLOCATED[128].loop(0.45))
    assert model == pytest.approx(scaling.COLOCATED[128].step, rel=0.02)
    model = scaling.step_s(scaling.STALENESS[0.0].loop(0.45))
    assert model == pytest.approx(scaling.STALENESS[0.0].step, rel=0.05)


def test_only_what_stands_between_the_markers_is_replaced(tmp_path):
    page = tmp_path / "page.md"
    page.write_text("before\n<!-- order -->\nold\n<!-- end of order -->\nafter\n")
    for _ in range(2):
        scaling.replace_table(page, "order", "| a |\n| b |")
    found = page.read_text()
    assert found == "before\n<!-- order -->\n| a |\n| b |\n<!-- end of order -->\nafter\n"
    with pytest.raises(ValueError, match="no markers <!-- runs -->"):
        scaling.replace_table(page, "runs", "")


def test_the_page_of_the_repository_has_the_markers_and_the_figure():
    page = scaling.PAGE
    text = page.read_text()
    for name in ("order", "published"):
        assert f"<!-- {name} -->\n| " in text
    assert f"({page.stem}.svg)" in text and page.with_suffix(".svg").is_file()
