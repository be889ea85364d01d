"""A whole study: stopped, killed, and gone on with; real runs, a report at its end."""

import json
import os
import signal
from math import inf
from pathlib import Path

import pandas as pd
import pytest

from experiments.studies.cli import MISUSED
from experiments.studies.jobs import Job
from experiments.studies.run import arms_to_start_with, main
from tests.experiments.studies.commands import start, wait_for

ROOT = Path(__file__).resolve().parents[3]
STUDY = """
question: whether it goes on
seeds: [0, 1]
overrides: [task=mini, steps=6, eval.every=0, eval.samples=2, "eval.k=[1,2]", train.prompts=2,
  train.group_size=2, task.train_problems=4, task.tune_problems=2, task.choose_problems=2,
  task.test_problems=2, sandbox=embedded, sandbox.workers=1, train.checkpoint_every=1]
arms:
  grpo_after_sft: {overrides: [algo=grpo], weights_of: sft}
  sft: {overrides: [algo=sft, train.offline_share=1]}
gains: [[grpo_after_sft, sft]]
margin: 0.2
control: sft
"""
MISTAKES = {
    "no such study": (["study=nimi"], "study=nimi"),
    "no such arm": (["study=mini", "arms=sof"], "arms=sof: choose from sft"),
    "no such seed": (["study=mini", "seeds=9"], "seeds=9: choose from 0, 1"),
    "no jobs": (["study=mini", "jobs=0"], "jobs='0'; it must be at least 1"),
    "half a job": (["study=mini", "jobs=1.5"], "jobs='1.5'; it takes a whole number"),
    "perhaps": (["study=mini", "plan=perhaps"], "plan='perhaps'; it is true or false"),
    "a seed": (["study=mini", "seed=3"], "seeds=3"),
    "no value": (["study"], "write key=value"),
    "a misspelt key of its own": (["study=mini", "job=8"], "job=8: no key of this command or of"),
    "Hydra's launcher": (["study=mini", "hydra/launcher=joblib"], "no key of this command"),
    "a run's key": (["study=mini", "arms=sft", "stps=3"], "did you mean 'steps'"),
}


@pytest.fixture
def command(tmp_path, monkeypatch):
    """The command in an empty folder, which leaves this process's signals alone."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("experiments.config.composition.SILENCE_S", inf)  # on a busy machine too
    before = [signal.getsignal(sent) for sent in (signal.SIGINT, signal.SIGTERM)]
    yield main
    for sent, handler in zip((signal.SIGINT, signal.SIGTERM), before, strict=True):
        signal.signal(sent, handler)


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_one_line(mistake, tmp_path, capsys, command):
    arguments, words = MISTAKES[mistake]
    assert command(arguments) == MISUSED
    told = capsys.readouterr().err
    assert told.startswith("error: ") and told.count("\n") == 1 and words in told
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("plan", ["true", "false"])
def test_rows_that_are_not_there_are_said_before_a_run_starts(tmp_path, capsys, monkeypatch, plan):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "s.yaml").write_text(STUDY.replace("task=mini", "task=mbpp, task.path=no.jsonl"))
    assert main(["study=s.yaml", "jobs=1", f"plan={plan}", "live=true"]) == MISUSED
    told = capsys.readouterr().err
    assert told.startswith("error: task.path=no.jsonl: ") and told.count("\n") == 1
    assert not list(tmp_path.glob("outputs/study-s/*/run.json"))


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (["task=taco", "task.path=none.jsonl"], "task.path=none.jsonl: no such file"),
        (["model.path=/none"], "model.path=/none: no such folder"),
        (["output_dir=/proc/x"], "output_dir=/proc/x: No such file or directory"),
    ],
)
def test_what_no_run_could_start_with_is_found_before_the_first(given, words, capsys, command):
    assert command(["study=mini", "seeds=0", "arms=sft,ppo", *given]) == MISUSED
    told = capsys.readouterr().err
    assert told.startswith("error: ") and told.count("\n") == 1 and words in told
    assert not list(Path().glob("outputs/study-mini/*"))


def refuses(*_):
    raise AssertionError("a run was started")


def test_a_plan_says_what_there_is_to_do_and_where(command, monkeypatch, capsys):
    monkeypatch.setattr("experiments.gpus.visible_gpus", list)
    monkeypatch.setattr("experiments.studies.runner.start_process", refuses)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1})
    Path("s.yaml").write_text(STUDY.replace("steps=6", "steps=2"))  # too few to time
    assert command(["study=s.yaml", "plan=true", "jobs=3"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[1:4] == [
        "2 arms × 2 seeds = 4 runs, in outputs/study-s:",
        "  sft: seeds 0, 1, 0 finished; steps=2 algo=sft train.offline_share=1",
        "  grpo_after_sft: seeds 0, 1, 0 finished; steps=2 algo=grpo, weights_of: sft",
    ]
    said = [line.partition(" ")[2] for line in lines[4:]]
    assert said[0] == "4 runs: 0 finished, 0 to resume, 4 to start; 3 at a time on 2 cores"
    assert said[1].startswith("WARNING: jobs=3 for 4 runs on 2 cores: ")
    assert said[2] == "8 steps in all: too few to time some of them first"


def test_a_plan_for_another_machine_warns_of_what_is_not_installed(command, monkeypatch, capsys):
    monkeypatch.setattr("experiments.config.dependencies.vllm_version", lambda: None)
    monkeypatch.setattr("experiments.studies.runner.start_process", refuses)
    given = ["study=mini", "arms=sft", "seeds=0,1", "engine=vllm"]
    assert command([*given, "plan=true"]) == 0
    told = capsys.readouterr()
    assert told.err.startswith("WARNING: engine.name=vllm: vLLM is not installed")
    assert told.err.count("\n") == 1
    assert "1 arms × 2 seeds = 2 runs" in told.out
    assert told.out.splitlines()[-1].endswith(
        "not timed: a package that the runs need is not installed here"
    )


def test_a_start_that_is_no_plan_times_nothing_first(command, monkeypatch, capsys):
    monkeypatch.setattr("experiments.studies.runner.start_process", refuses)
    monkeypatch.setattr("experiments.studies.runner.Runner.run", lambda runner: None)
    monkeypatch.setattr("experiments.studies.run._finish", lambda *_: 7)
    Path("s.yaml").write_text(STUDY.replace("steps=6", "steps=600"))
    assert command(["study=s.yaml"]) == 7
    assert "timing" not in capsys.readouterr().out


def test_of_the_arms_one_of_each_algorithm_is_timed_first():
    algorithms = ["spo", "spo", "sft", "grpo", "spo"]
    jobs = [Job(f"{i}", 0, (f"algo={name}",)) for i, name in enumerate(algorithms)]
    jobs.append(Job("after", 0, ("algo=ppo",), weights_of=jobs[0]))

    def chosen(most):
        return [job.arm for job in arms_to_start_with(jobs, most)]

    assert chosen(9) == ["0", "2", "3", "1", "4"]
    assert chosen(4) == ["0", "2", "3", "1"]
    assert chosen(2) == ["0", "2"]


@pytest.mark.slow
def test_a_study_that_is_interrupted_and_then_killed_goes_on_and_does_nothing_twice(
    tmp_path, monkeypatch
):
    (tmp_path / "s.yaml").write_text(STUDY)
    folder = tmp_path / "out" / "study-s"
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "8,9")  # made up: they are only handed out

    begun = start("run", tmp_path)
    wait_for(lambda: rows(folder) >= 2, begun)
    begun.send_signal(signal.SIGINT)
    assert begun.wait(600) == 130
    assert "the same command resumes" in begun.stdout.read()
    assert all(info["status"] in ("interrupted", "finished") for info in infos(folder))

    killed = start("run", tmp_path)
    before = rows(folder)
    wait_for(lambda: rows(folder) >= before + 3, killed)
    killed.kill()
    killed.wait()

    last = start("run", tmp_path)
    said = last.communicate(timeout=600)[0]
    assert last.returncode == 0, said
    known = infos(folder)
    assert [info["status"] for info in known] == ["finished"] * 4
    assert any(info["resumed"] for info in known)
    assert {info["study"] for info in known} == {"study-s"}
    assert {info["visible_gpus"] for info in known} == {"8", "9"}
    for file in folder.glob("*/metrics.parquet"):
        assert list(pd.read_parquet(file)["step"]) == [1, 2, 3, 4, 5, 6]
    assert (folder / "report" / "report.html").is_file()
    arms = json.loads((folder / "arms.json").read_text())
    assert {(one["arm"], one["seed"], one["status"]) for one in arms} == {
        (arm, seed, "finished") for arm in ("sft", "grpo_after_sft") for seed in (0, 1)
    }
    named = pd.read_csv(folder / "report" / "contrasts.csv")
    assert set(zip(named["a"], named["b"], strict=True)) == {("grpo_after_sft", "sft")}
    assert set(pd.read_csv(folder / "report" / "control.csv")["margin"].dropna()) == {0.2}
    weights = {Path(one["run"]).name: infos_of(one["run"])["weights"] for one in arms}
    assert len(set(weights.values())) == 3  # the bundled model's, and each seed's after sft


def rows(folder):
    """Steps behind, of all runs."""
    journals = folder.glob("*/metrics.jsonl")
    ended = folder.glob("*/metrics.parquet")
    going = {file.parent: len(file.read_text().splitlines()) for file in journals}
    return sum(({f.parent: len(pd.read_parquet(f)) for f in ended} | going).values())


def infos(folder):
    return [json.loads(file.read_text()) for file in sorted(folder.glob("*/run.json"))]


def infos_of(run):
    return json.loads((Path(run) / "run.json").read_text())
