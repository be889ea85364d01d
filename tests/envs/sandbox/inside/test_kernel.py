"""The clock of a test's wall time, on scripted looks at its threads."""

from types import SimpleNamespace

import pytest

from envs.sandbox.inside import kernel
from envs.sandbox.inside.kernel import WallClock

LIMIT_S = 2.0
LOOK_S = 0.125  # exact in binary, so that sums of it are too
MAIN, OTHER = "1", "2"


class Scripted(WallClock):
    """A clock whose time and threads a test sets."""

    def __init__(self, monkeypatch, known=True):
        self.time_s, self.threads, self.continued = 100.0, {}, 0
        monkeypatch.setattr(kernel, "LOOK_S", LOOK_S)
        monkeypatch.setattr(kernel, "time", SimpleNamespace(monotonic=lambda: self.time_s))
        monkeypatch.setattr(kernel.signal, "pidfd_send_signal", self._count)
        super().__init__(SimpleNamespace(counts_waiting=known), -1, LIMIT_S, self.time_s)

    def _count(self, *_):
        self.continued += 1

    def _threads(self):
        for thread, (state, waited_s) in self.threads.items():
            yield thread, state, int(waited_s * 1e9)

    def run(self, seconds, state=b"S", late_s=0.0, **waits):
        """Pass time in pauses as they are made, with what each thread waits for a core per second.

        Returns the seconds that are left. `late_s`: the last pause takes so much longer.
        """
        steps = round(seconds / LOOK_S)
        for step in range(steps):
            for thread, per_s in waits.items():
                number = thread.removeprefix("t")
                before = self.threads.get(number, (state, 0.0))[1]
                self.threads[number] = (state, before + per_s * LOOK_S)
            self.time_s += LOOK_S + (late_s if step == steps - 1 else 0.0)
            self.wake(LOOK_S)
            left = self.left_s()
        return left


@pytest.fixture
def clock(monkeypatch):
    clock = Scripted(monkeypatch)
    clock.begin(100.0)
    return clock


def test_a_test_that_sleeps_is_at_its_limit_and_this_is_certain(clock):
    assert clock.run(1.75, t1=0.0) == 0.25
    assert clock.run(0.25) <= 0
    assert not clock.starved()
    report = clock.report(0.1, killed=True)
    assert report.pop("idle_s") == pytest.approx(1.9)
    assert report == {"lost_s": 0.0, "accounted": True, "late": False}


def test_time_without_a_core_is_not_its_own(clock):
    assert clock.run(3.0, t1=0.5) == pytest.approx(0.5)
    assert clock.report(0.0, killed=False)["lost_s"] == pytest.approx(1.5)


@pytest.mark.parametrize("stall_s", [1.0, 10.0, 300.0])
def test_time_in_which_the_server_stood_still_is_not_its_own(clock, stall_s):
    assert clock.run(1.0, late_s=stall_s) == pytest.approx(1.0)
    assert not clock.starved()
    assert clock.run(0.75) == pytest.approx(0.25)
    assert clock.run(0.375) <= 0
    assert clock.report(0.0, killed=True)["accounted"]


def test_a_stall_before_the_program_begins_is_not_given_to_it(monkeypatch):
    clock = Scripted(monkeypatch)
    clock.time_s += 9.0
    clock.wake(0.05)
    clock.begin(clock.time_s - 0.5)
    assert clock.left_s() == pytest.approx(LIMIT_S)  # it began half a second before the end
    assert clock.stalled_s == pytest.approx(0.5)


@pytest.mark.parametrize(("slept_s", "late"), [(0.5, False), (2.5, True)])
def test_an_end_that_nobody_watched_may_have_come_too_late(clock, slept_s, late):
    clock.run(0.125, late_s=slept_s)
    assert clock.report(0.0, killed=False)["late"] is late
    assert clock.report(0.0, killed=True)["late"] is False


def test_threads_that_wait_at_once_get_the_time_of_one(clock):
    """And whether each of them waited while no other could run is not certain."""
    assert clock.run(2.0, t1=0.4, t2=0.4, t3=0.2) == pytest.approx(0.8)
    assert clock.run(1.5, t1=0.4, t2=0.4, t3=0.2) <= 0
    report = clock.report(0.0, killed=True)
    assert (report["accounted"], report["idle_s"]) == (False, 0.525)


def test_a_test_that_never_gets_a_core_is_given_up(clock):
    assert clock.run(7.75, state=b"R", t1=1.0) > 0
    assert clock.run(0.25, state=b"R", t1=1.0) <= 0
    assert clock.starved()


def test_a_stopped_test_is_continued_and_gains_nothing(clock):
    """From outside, a program that stops itself again and again looks the same."""
    assert clock.run(2.0, state=b"T", t1=0.0) <= 0
    assert clock.continued >= 12
    assert clock.report(0.0, killed=True)["accounted"]


def test_where_the_kernel_counts_no_waiting_nothing_is_certain(monkeypatch):
    clock = Scripted(monkeypatch, known=False)
    clock.begin(100.0)
    assert clock.run(2.0, t1=0.0) <= 0
    report = clock.report(0.1, killed=True)
    assert (report["accounted"], report["idle_s"]) == (False, 0.0)


def test_threads_that_compute_at_once_gain_no_more_than_time_has_passed(clock):
    """Each waits for the others most of the time, and one of 200 ends its wait at each look."""
    for step in range(40):
        clock.run(LOOK_S, state=b"R", **{f"t{step}": 4.0})  # half a second in an eighth
    assert clock.waited_s <= 40 * LOOK_S + LOOK_S
    clock.threads = {MAIN: (b"S", 0.0)}
    assert clock.run(LIMIT_S + LOOK_S) <= 0
    assert not clock.starved()


def test_a_stall_in_which_a_thread_had_no_core_either_counts_once(clock):
    clock.run(1.0, t1=0.0, late_s=4.0)
    clock.threads[MAIN] = (b"S", 4.0)
    clock.run(0.125)
    assert clock.stalled_s + clock.waited_s == pytest.approx(4.0, abs=2 * LOOK_S)


def test_a_wait_of_many_looks_counts_whole_once_it_ends(clock):
    clock.run(5.0, state=b"R", t1=0.0)
    clock.threads[MAIN] = (b"R", 5.0)
    clock.run(0.125)
    assert clock.waited_s == pytest.approx(5.0)


def test_threads_that_wake_up_at_once_use_up_the_budget_too(clock):
    """Their waits for each other add up to more than the time that has passed."""
    clock.run(1.5, **{f"t{i}": 0.1 for i in range(50)})
    assert clock.report(0.1, killed=False)["idle_s"] == pytest.approx((1.5 * 0.9 - 0.1) / 4)
