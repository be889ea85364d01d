"""Processes of a study's runs: what they are told, and what is said of their end."""

import os
from types import SimpleNamespace

import pandas as pd
import pytest

from experiments.studies import runner as runners
from experiments.studies.estimate import Clock
from experiments.studies.jobs import End, Job
from experiments.studies.runner import Runner, time_few_steps
from experiments.sweep_jobs import shows_responses


@pytest.fixture
def runner(tmp_path, monkeypatch):
    """A runner of two jobs whose processes end at once; `started` has their environments."""
    ends = {"good": End("finished", tmp_path), "bad": End("failed", tmp_path, "why")}
    jobs = [Job(arm, 0, ()) for arm in ends]
    started, commands, said, outputs = [], [], [], []

    def popen(command, **given):
        started.append(given["env"])
        outputs.append(given["stdout"])
        commands.append(command)
        return SimpleNamespace(poll=lambda: 0, returncode=0)

    monkeypatch.setattr("experiments.studies.runner.subprocess.Popen", popen)
    monkeypatch.setattr("experiments.studies.runner.end_of", lambda arm: ends[arm])
    monkeypatch.setattr("experiments.studies.runner.lock", lambda _: os.dup(0))
    made = Runner(jobs, 1, said.append)
    monkeypatch.setattr(made.clock, "learn", lambda *_: None)
    monkeypatch.setattr(made, "log", lambda job: tmp_path / f"{job.arm}.log")

    class Config(str):
        name = "study-s"

    monkeypatch.setattr(made, "config", lambda job: Config(job.arm))
    made.started, made.commands, made.said, made.outputs = started, commands, said, outputs
    return made


def test_a_run_is_told_which_study_started_it(runner):
    runner.run()
    assert [env["SPO_BENCH_STUDY"] for env in runner.started] == ["study-s", "study-s"]


def test_a_live_run_writes_where_its_study_does(runner, tmp_path):
    runner.live = True
    runner.run()
    assert runner.outputs == [None, None] and not list(tmp_path.glob("*.log"))


@pytest.mark.parametrize("live", [True, False])
def test_only_live_runs_show_responses(runner, monkeypatch, live):
    runner.live = live
    runner.run()
    monkeypatch.setattr(os, "environ", runner.started[0])
    assert shows_responses() == live


def test_a_run_writes_into_its_log(runner, tmp_path):
    runner.run()
    assert [out.name for out in runner.outputs] == [
        str(tmp_path / f"{n}.log") for n in ("good", "bad")
    ]


def test_an_end_is_handed_on_before_its_line_is_said(runner):
    """So that the line can say what followed from it; a failure without a time is no error."""
    told = []
    runner.after = lambda job, end: told.append((job.arm, end.status, len(runner.said)))
    runner.run()
    assert told == [("good", "finished", 1), ("bad", "failed", 3)]
    assert runner.said[1::2] == ["good-s0 done; 1 of 2", "bad-s0 failed: why; 2 of 2"]


def test_the_last_run_leaves_no_time(runner, monkeypatch):
    runner.clock.steps["good"] = [1.0]
    monkeypatch.setattr(runner, "seconds_left", lambda: 60.0)
    runner.run()
    assert [line.partition("; ")[2] for line in runner.said[1::2]] == [
        "1 of 2; 1 min left",
        "2 of 2",
    ]


@pytest.mark.parametrize(("again", "words"), [("changed", ["again=changed"]), ("never", [])])
def test_which_runs_begin_anew_and_an_old_folder_is_not_their_end(
    again, words, runner, monkeypatch
):
    monkeypatch.setattr(
        "experiments.studies.runner.begins_anew",
        lambda folder, config, again: again == "changed" and config == "good",
    )
    runner.again = again
    runner.look()
    assert [config for _, config in runner.found] == ["good", "bad"]
    assert [job.arm for job in runner.left()] == (["good", "bad"] if words else ["bad"])
    runner.run()
    assert all(command[4:] == words for command in runner.commands)
    ends = {job.arm: end.status for job, end in runner.ended.items()}
    assert ends == {"good": "failed" if words else "finished", "bad": "failed"}


@pytest.mark.parametrize("ending", [["a"], ["b"], ["a", "b"], []])
def test_timing_ends_at_its_bound_with_what_was_timed(ending, tmp_path, monkeypatch):
    """Without the first job no evaluation was timed, so no time follows."""
    killed, commands, said = [], [], []

    def start(command, log, name):
        arm = name.rpartition("-")[2]
        commands.append(command)
        (log.parent / "run").mkdir(parents=True)
        table = {"time/total_s": [9.0, 11.0, 16.0, 18.0], "time/evaluate_s": [5.0, 5.0, 8.0, 8.0]}
        pd.DataFrame(table).to_parquet(log.parent / "run" / "metrics.parquet")
        status = 0 if arm in ending else None
        return SimpleNamespace(
            poll=lambda: status, returncode=status, kill=lambda: killed.append(arm), wait=int
        )

    monkeypatch.setattr(runners, "start_process", start)
    now = [0.0]  # seconds
    clock = SimpleNamespace(monotonic=lambda: now[0], sleep=lambda _: now.append(now.pop() + 9))
    monkeypatch.setattr(runners, "time", clock)
    evaluation = SimpleNamespace(samples=10)
    config = SimpleNamespace(output_dir=tmp_path, name="s", eval=evaluation)
    jobs = {Job(arm, 0, ()): ((f"algo={arm}",), config) for arm in "abc"}
    clock = Clock()
    timed = time_few_steps(jobs, 2, clock, said.append)
    assert [job.arm for job in timed] == (ending if "a" in ending else [])
    assert clock.steps == {arm: [2.0] for arm in ending}
    assert clock.evaluations == ([30.0] if "a" in ending else [])
    assert sorted([*killed, *ending]) == [*"abc"][: 2 + bool(ending)]  # others had not begun
    assert said[0] == "timing 4 steps of a, 1 of 3 …" and len(said) == len(commands)
    assert ["eval.every=2" in command for command in commands][:2] == [True, False]
    assert list(tmp_path.iterdir()) == []
