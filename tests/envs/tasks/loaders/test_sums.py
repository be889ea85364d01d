"""Sums: right, the same every time, and no sum in two splits."""

import re

from envs.environment import Submission
from envs.tasks import open_task
from envs.tasks.sums import FirstInteger, load
from envs.tasks.task_cli import task_config


def test_the_answers_are_right_and_no_two_splits_share_a_problem():
    splits = {split: load(split, 10**6) for split in ("train", "tune", "choose", "test")}
    problems = [problem for split in splits.values() for problem in split]
    assert len({problem.statement for problem in problems}) == len(problems) == 50 * 50
    environment = FirstInteger()
    for problem in problems:
        a, b = map(int, re.findall(r"\d+", problem.statement))
        assert problem.solutions == (str(a + b),)
        responses = (*problem.solutions, *problem.incorrect_solutions)
        asked = [Submission(problem, response) for response in responses]
        assert [found.passed for found in environment.judge(asked)] == [1] + [0] * (len(asked) - 1)


def test_the_task_is_the_same_every_time_and_as_large_as_asked_for():
    one, same = (open_task(task_config(["task=sums"])) for _ in range(2))
    assert one == same and len(one.train) == 60 and len(one.test) == 30
    assert one.prompt(one.train[0]).startswith("What is ")
    few = open_task(task_config(["task=sums", "task.train_problems=7"]))
    assert few.train == one.train[:7] and few.data_hash != one.data_hash
