"""How long a study takes, before it starts."""

import json

import pandas as pd
import pytest

from experiments.studies.estimate import (
    Clock,
    arms_to_time,
    evaluations,
    format_duration,
    whole_time,
)
from experiments.studies.jobs import End, Job
from experiments.studies.runner import _times
from tests.experiments.compose import config

A, B = Job("a", 0, ()), Job("b", 0, ())


def test_evaluations_are_counted_as_the_loop_makes_them():
    found = [
        evaluations(config(f"steps={s}", f"eval.every={e}"))
        for s, e in [(0, 50), (200, 50), (201, 50), (60, 0)]
    ]
    assert found == [1, 5, 6, 2]
    further = "eval.further_temperatures=[0,1]"
    found = [
        evaluations(config(f"steps={s}", f"eval.every={e}", further))
        for s, e in [(0, 50), (200, 50), (60, 0)]
    ]
    assert found == [3, 9, 6]


def test_of_a_finished_run_those_at_the_end_come_after_the_last_row(tmp_path):
    rows = {"time/total_s": [60.0, 90.0, 140.0], "time/evaluate_s": [40.0, 40.0, 60.0]}
    pd.DataFrame(rows).to_parquet(tmp_path / "metrics.parquet")
    clock = Clock()  # before the last row two at the start and one at step 2
    clock.learn("a", tmp_path, config("steps=3", "eval.every=2", "eval.further_temperatures=[1]"))
    assert clock.evaluations == [20.0]


def test_a_finished_run_tells_a_step_and_an_evaluation(tmp_path):
    rows = {"time/total_s": [30.0, 60.0, 110.0], "time/evaluate_s": [10.0, 10.0, 20.0]}
    pd.DataFrame(rows).to_parquet(tmp_path / "metrics.parquet")
    clock, settings = Clock(), config("steps=3", "eval.every=2")
    clock.learn("a", tmp_path, settings)
    assert (clock.steps, clock.evaluations) == ({"a": [30.0]}, [10.0])
    assert clock.seconds(A, settings, End("not begun")) == 3 * 30 + 3 * 10
    assert clock.seconds(B, settings, End("not begun")) == 120  # as the others
    (tmp_path / "run.json").write_text(json.dumps({"checkpoints": {"step-1": 1, "step-2": 2}}))
    left = clock.seconds(A, settings, End("interrupted", tmp_path))
    assert left == pytest.approx(40)


def test_what_a_run_took_from_another_is_no_time_of_its_own(tmp_path):
    rows = {"time/total_s": [110.0], "time/evaluate_s": [20.0], "time/charged_s": [55.0]}
    pd.DataFrame(rows).to_parquet(tmp_path / "metrics.parquet")
    clock = Clock()
    clock.learn("a", tmp_path, config("steps=1", "eval.every=0"))
    assert (clock.steps, clock.evaluations) == ({"a": [45.0]}, [10.0])


def test_the_whole_is_the_share_of_a_worker_but_no_less_than_a_chain():
    after = Job("c", 0, (), weights_of=A)
    assert whole_time({A: 60, B: 60}, 2) == 60
    assert whole_time({A: 60, B: 60}, 1) == 120
    assert whole_time({A: 60, after: 60}, 2) == 120
    assert whole_time({after: 60}, 2) == 60
    assert whole_time({}, 2) == 0


def test_timing_adds_at_most_a_fifth_to_the_steps_and_samples_of_a_study():
    def most(runs, steps, samples):
        one = config(f"steps={steps}", "eval.every=0", f"eval.samples={samples}", "eval.k=[1]")
        return arms_to_time([one] * runs)

    assert [most(3, steps, 20) for steps in (0, 2, 10, 20, 200)] == [0, 0, 1, 3, 8]
    assert most(2, 200, 1) == 0  # its four evaluations of a sample are as long as those of one arm
    assert most(2, 200, 5) == 1


def test_durations_in_words():
    assert [format_duration(s) for s in (10, 240, 7260)] == ["1 min", "4 min", "2 h 01 min"]


def test_a_timing_run_s_steps_are_without_evaluations_and_its_evaluation_is_not_the_base_s(
    tmp_path,
):
    evaluated = [30.0, 30.0, 35.0, 35.0]  # before step 1, and after step 2
    rows = {"time/total_s": [40.0, 42.0, 49.0, 60.0], "time/evaluate_s": evaluated}
    pd.DataFrame(rows).to_parquet(tmp_path / "metrics.parquet")
    assert _times(tmp_path / "metrics.parquet") == (2.0, 5.0)
