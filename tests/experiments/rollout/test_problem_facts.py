"""Facts of a run's problems: what cheap programs earn, and error rates that a command measured."""

import pytest

from envs.tasks import open_task
from envs.tasks.stored import strengths
from envs.tasks.strength import cheap_earnings, earnings_line
from experiments.errors import UserError
from experiments.rollout.problem_facts import problem_facts
from tests.envs.tasks.contest_rows import codecontests_plus, codeforces
from tests.envs.tasks.dataset_rows import taco_row, write
from tests.experiments.compose import config


def test_answers_that_are_no_programs_have_no_such_facts():
    assert problem_facts(config("task=sums"), {"train": []}, "1") == {}


def test_stored_and_generated_problems_are_counted_alike(tmp_path):
    rows = [taco_row(i, question=f"Repeat {i}. Input 0 Output 0.") for i in range(40)]
    write(tmp_path / "train-0.jsonl", rows)
    run = config("task=taco", f"task.path={tmp_path}", "task.decontaminate=false")
    stored = open_task(run.task).train
    earnings = cheap_earnings(strengths(stored))
    assert earnings == cheap_earnings(strengths(list(stored)))
    count = len(stored)
    assert earnings["problems"] == earnings["compared"] == earnings["earned_by_any"] == count > 0
    assert earnings["earned"]["echo of the input"] == count
    assert earnings["earned"]["samples table"] == 0
    assert earnings["mean_share"]["samples table"] == pytest.approx(1 / 6, abs=1e-4)
    assert earnings_line(earnings) == (
        f"programs that solve nothing earn the reward of {count} of {count} training problems "
        f"(echo of the input: {count})"
    )
    assert earnings_line(cheap_earnings([])) == ""


def test_checker_programs_are_counted_and_those_that_cannot_run_are_refused(tmp_path):
    found = {}
    for name, rows in {
        "codeforces": [codeforces(i, generated_checker="print(1)" * (i > 1)) for i in range(5)],
        "codecontests_plus": [codecontests_plus(i) for i in range(3)],
        "taco": [taco_row(0)],
    }.items():
        run = config(f"task={name}", f"task.path={write(tmp_path / f'{name}.jsonl', rows)}")
        splits = open_task(run.task).splits().values()
        found[name] = [problem for problems in splits for problem in problems]
    assert "checker_programs" not in problem_facts(run, {"train": found["taco"]}, "1")
    facts = problem_facts(run, {"train": found["codeforces"], "eval": found["taco"]}, "1")
    assert facts["checker_programs"] == {"train": {"python": 3}, "eval": {}}
    nowhere = config("task=codecontests_plus", "task.path=x", f"judge.testlib={tmp_path}")
    with pytest.raises(UserError, match=r"compiler|judge\.testlib=.* holds no testlib\.h"):
        problem_facts(nowhere, {"eval": found["codecontests_plus"]}, "1")
