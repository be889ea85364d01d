"""Evaluations at further temperatures: their samples, what they leave alone, how they resume."""

import os
import signal

import pandas as pd
import pytest

from experiments import evaluation, trainer
from experiments.config import resume
from experiments.errors import UserError
from experiments.rollout.generate import Responder
from tests.experiments.compose import config as config_of

SMALL = [
    "algo=grpo",
    "steps=2",
    "eval.every=1",
    "eval.samples=4",
    "eval.k=[1,2]",
    "eval.kl_samples=0",
    "train.prompts=2",
    "train.group_size=4",
    "train.checkpoint_every=1",
    "task.train_problems=6",
    "task.choose_problems=4",
    "task.test_problems=2",
    "task.tune_problems=2",
    "sandbox=embedded",
    "sandbox.workers=1",
    "task.max_response_tokens=32",
    "algo.learning_rate=1e-3",
]
FURTHER = "eval.further_temperatures=[0,1]"


def begin(output_dir, *overrides):
    return trainer.train(config_of(*SMALL, f"output_dir={output_dir}", *overrides))


def resumed(folder, *overrides):
    return trainer.train(resume.resumed_config(folder, overrides), folder)


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """A finished run with these overrides, made once."""
    folders = {}

    def of(*overrides):
        if overrides not in folders:
            outcome = begin(tmp_path_factory.mktemp("run"), *overrides)
            assert outcome.status == "finished", outcome.error
            folders[overrides] = outcome.folder
        return folders[overrides]

    return of


def table(folder, name):
    rows = pd.read_parquet(folder / f"{name}.parquet")
    timed = [c for c in rows if c.startswith(("time/", "memory/")) or c == "cpu_s"]
    return rows.drop(columns=timed)


def assert_same(folder, undisturbed, *names):
    for name in names:
        pd.testing.assert_frame_equal(
            table(folder, name), table(undisturbed, name), check_exact=True
        )


ALL = ("metrics", "evals", "further_evals")


def test_samples_are_drawn_at_the_further_temperatures(finished):
    rows = pd.read_parquet(finished(FURTHER) / "further_evals.parquet")
    main = pd.read_parquet(finished(FURTHER) / "evals.parquet")
    assert sorted({*zip(rows["step"], rows["temperature"], strict=True)}) == [
        *((0, 0.0), (0, 1.0), (2, 0.0), (2, 1.0))
    ]
    assert list(rows.columns) == [*main.columns, "temperature"]
    for _, part in rows.groupby(["step", "temperature"]):
        whole = main[main["step"] == part["step"].iloc[0]]
        keys = ["problem", "sample", "difficulty", "tags"]
        assert part[keys].reset_index(drop=True).equals(whole[keys].reset_index(drop=True))
    programs = rows.groupby(["temperature", "step", "problem"])["program"].nunique()
    assert (programs[0.0] == 1).all()  # the most probable program, four times
    assert programs[1.0].mean() > 3


def test_all_else_is_the_same_with_and_without_them(finished):
    plain, further = finished(), finished(FURTHER)
    assert_same(further, plain, "metrics", "evals", "problems")
    weights = "checkpoints/final/model.safetensors"
    assert (plain / weights).read_bytes() == (further / weights).read_bytes()
    names = [{path.name for path in run.iterdir()} for run in (plain, further)]
    assert names[1] - names[0] == {"further_evals.parquet"}
    shown = [(run / "run.json").read_text().partition('"pass_at"')[2] for run in (plain, further)]
    assert shown[0].partition("}")[0] == shown[1].partition("}")[0] != ""


def test_each_temperature_has_random_streams_of_its_own_and_all_else_is_shared(
    tmp_path, monkeypatch
):
    asked, respond = [], Responder.respond

    def recorded(self, prompts, seeds, sampling, *rest):
        asked.append((sampling, {seed for group in seeds for seed in group}))
        return respond(self, prompts, seeds, sampling, *rest)

    monkeypatch.setattr(Responder, "respond", recorded)
    begin(tmp_path, "steps=0", "eval.temperature=1", "eval.further_temperatures=[0.4]")
    begin(tmp_path, "steps=0", "eval.further_temperatures=[1]")
    assert [sampling.temperature for sampling, _ in asked] == [1, 0.4, 0.4, 1]
    assert len({(sampling.top_p, sampling.max_tokens) for sampling, _ in asked}) == 1
    main, further, other_main, other_further = (seeds for _, seeds in asked)
    assert main == other_main and len(main) == 4 * 4
    # A further evaluation is never the main one of another run.
    assert len(main | further | other_further) == 3 * len(main)


def test_the_base_is_evaluated_once_for_all_runs_of_a_seed(tmp_path, monkeypatch):
    made, evaluate = [], evaluation.evaluate

    def counted(config, *given):
        made.append(given[-3])
        return evaluate(config, *given)

    monkeypatch.setattr(evaluation, "evaluate", counted)
    folders = [begin(tmp_path, "steps=0", FURTHER).folder for _ in range(2)]
    assert made == [None, 0.0, 1.0]
    assert_same(*folders, "evals", "further_evals")


def killed_at(call, output_dir, *overrides):
    """The folder of a run that is killed at the end of its `call`-th own evaluation."""
    child = os.fork()
    if not child:
        calls, evaluate = [], trainer.evaluate

        def killing(*given):
            rows = evaluate(*given)
            calls.append(1)
            if len(calls) == call:
                os.kill(os.getpid(), signal.SIGKILL)
            return rows

        trainer.evaluate = evaluation.evaluate = killing
        begin(output_dir, *overrides)
        os._exit(1)
    _, status = os.waitpid(child, 0)
    assert os.WTERMSIG(status) == signal.SIGKILL
    (folder,) = output_dir.glob("mini/*")
    return folder


# the base's three evaluations, the main one after a step, and three at the end
KILLS = {"at the start": 2, "at the end": 6}


# Slow: kills elsewhere are in test_resume.py, and one among the base's evaluations below.
@pytest.mark.slow
@pytest.mark.parametrize("moment", KILLS)
def test_kill_9_among_them_costs_nothing(moment, finished, tmp_path):
    call = KILLS[moment]
    folder = killed_at(call, tmp_path, FURTHER)
    assert resumed(folder).status == "finished"
    assert_same(folder, finished(FURTHER), *ALL)


def test_what_the_base_was_evaluated_at_before_a_kill_is_not_done_again(tmp_path, monkeypatch):
    folder = killed_at(3, tmp_path, FURTHER, "steps=0")
    made, evaluate = [], evaluation.evaluate

    def counted(config, *given):
        made.append(given[-3])
        return evaluate(config, *given)

    monkeypatch.setattr(evaluation, "evaluate", counted)
    assert resumed(folder).status == "finished"
    assert made == [1.0]


@pytest.mark.slow  # two more runs; test_resume.py extends one without further temperatures
def test_an_extended_run_is_evaluated_at_its_new_end(finished, tmp_path):
    longer = begin(tmp_path, FURTHER, "steps=1").folder
    assert resumed(longer, "steps=2").status == "finished"
    whole = finished(FURTHER)
    assert_same(longer, whole, "metrics", "evals")
    rows = table(longer, "further_evals")
    assert list(rows["step"].unique()) == [0, 1, 2]  # the former end's stay
    kept = rows[rows["step"] != 1].reset_index(drop=True)
    pd.testing.assert_frame_equal(kept, table(whole, "further_evals"), check_exact=True)


def test_a_run_resumes_with_its_own_temperatures_only(finished):
    with pytest.raises(UserError, match=r"further_temperatures=\[2\.0\] \(was \[0\.0, 1\.0\]"):
        resume.resumed_config(finished(FURTHER), ["eval.further_temperatures=[2.0]"])


@pytest.mark.parametrize(
    ("value", "cure"),
    [
        ("[0.4]", "0.4 is eval.temperature"),
        ("[1,0.4]", "0.4 is eval.temperature"),
        ("[1,1.0]", "1 is listed twice"),
        ("[1,1.0000001]", "1 is listed twice"),  # it would have the same name
        ("[0.0,-0.0]", "0 is listed twice"),
        ("[inf]", "not a finite number"),
        ("[nan]", "it must be at least 0"),
        ("[-1]", "it must be at least 0"),
        ("1", "it takes a list"),
    ],
)
def test_impossible_temperatures_are_refused_by_name(value, cure):
    with pytest.raises(UserError, match=r"eval\.further_temperatures") as caught:
        config_of(f"eval.further_temperatures={value}")
    assert cure in str(caught.value) and "\n" not in str(caught.value)
