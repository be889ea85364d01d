"""A split that has nothing left says why, and which key would give it something."""

import hashlib
import json

import pytest

from envs.tasks import open_task
from experiments.rollout.problem_facts import problem_line
from experiments.trainer import train
from tests.envs.tasks.dataset_rows import config as config_of_task
from tests.envs.tasks.dataset_rows import taco_row, write
from tests.experiments.compose import config


@pytest.fixture
def failed(tmp_path_factory):
    """Train with these overrides, in a folder of its own, and return the error that ends it."""
    outputs = tmp_path_factory.mktemp("outputs")
    return lambda *overrides: _error("sandbox=embedded", f"output_dir={outputs}", *overrides)


def _error(*overrides):
    outcome = train(config("model=nano", *overrides))
    assert (outcome.status, outcome.expected) == ("failed", True)
    return outcome.error


def test_prompts_that_are_all_too_long(tmp_path, failed):
    sizes = (
        "task.train_problems=3",
        "task.tune_problems=1",
        "task.choose_problems=2",
        "task.test_problems=2",
    )
    said = failed("task.max_prompt_tokens=9", *sizes)
    assert "the train split is empty: all of its prompts are over task.max_prompt_tokens=9" in said
    shortest = int(said.split("the shortest has ")[1].split()[0])
    assert "raise the limit" in said and 9 < shortest < 256


def test_a_train_split_that_is_only_evaluated_is_needed_too(failed):
    limits = ("task.max_prompt_tokens=9", "steps=0", "eval.split=train")
    assert "the train split is empty: all of its prompts are over" in failed(*limits)


def test_decontamination_that_leaves_nothing(tmp_path, failed):
    rows = [taco_row(i) for i in range(6)]
    paths = [write(tmp_path / f"{name}.jsonl", rows) for name in ("train", "test")]
    given = [f"task.path={paths[0]}", f"task.test_path={paths[1]}"]
    said = failed("task=taco", *given)
    assert "the train split is empty: 6 problems are also in another split; " in said
    assert "task.decontaminate=false" in said


def test_decontamination_that_leaves_little(tmp_path):
    """As of statements that one template wrote: the line of problems names the key."""
    rows = [taco_row(i) for i in range(6)]
    (tmp_path / "rows").mkdir()
    write(tmp_path / "rows" / "train.jsonl", rows)
    for copies, said in ((4, True), (2, False)):
        write(tmp_path / "rows" / "test.jsonl", rows[:copies])
        task = open_task(config_of_task("taco", str(tmp_path / "rows")))
        line = problem_line(task, len(task.train), len(task.test), {})
        assert line.startswith(f"{6 - copies} for training, {copies} for evaluation")
        assert ("task.decontaminate=false keeps them" in line) == said


def test_a_file_so_small_that_no_problem_falls_into_the_split_of_the_evaluation(tmp_path, failed):
    rows = [taco_row(i) for i in range(60)]
    path = write(tmp_path / "rows.jsonl", rows)
    kept = {problem.statement for problem in open_task(config_of_task("taco", path)).train}
    few = [row for row in rows if row["question"] in kept][:6]
    said = failed("task=taco", f"task.path={write(tmp_path / 'few.jsonl', few)}")
    assert "task=taco: the choose split is empty" in said
    assert (
        "(20 % test, 10 % tune, 10 % choose, 60 % train), and none of 6 problems fell there" in said
    )
    assert "a folder with train*, valid*, choose* and test* files" in said
    assert "eval.split=test" not in said  # none of these is a test problem

    folder = tmp_path / "folder"
    folder.mkdir()
    write(folder / "train.jsonl", few)
    write(folder / "test.jsonl", rows[-3:])
    said = failed("task=taco", f"task.path={folder}")
    assert "none of 6 problems fell there; add rows to the train* files, or a choose* file" in said
    assert "or set eval.split=test (3 problems)" in said
    assert "loosen" not in said

    easy = [row | {"difficulty": "EASY"} for row in few]
    hard = [row | {"difficulty": "HARD"} for row in rows if row not in few][:-3]
    write(folder / "train.jsonl", easy + hard)
    said = failed("task=taco", f"task.path={folder}", "task.difficulty=EASY", "eval.split=tune")
    assert "split is empty" in said and "or loosen task.difficulty" in said


def test_a_validation_split_of_which_a_half_is_empty(tmp_path, failed):
    """The user has given a file for each split: the message says which of them lacks rows."""
    rows = [taco_row(i) for i in range(60)]
    positions = [
        int(hashlib.sha256(row["question"].encode()).hexdigest()[:14], 16) / 16**14 for row in rows
    ]
    tune = [row for row, position in zip(rows, positions, strict=True) if position < 0.5]
    write(tmp_path / "train.jsonl", [taco_row(i) for i in range(60, 66)])
    write(tmp_path / "valid.jsonl", tune[:3])
    write(tmp_path / "test.jsonl", [taco_row(i) for i in range(66, 68)])
    said = failed("task=taco", f"task.path={tmp_path}")
    assert (
        "the choose split is empty: a hash of each statement decides its split (50 % tune, 50 % "
        "choose), and none of 3 problems fell there; add rows to the valid* files, or a choose* "
        "file, with which all of valid* is tune, or set eval.split=tune (3 problems), or set "
        "eval.split=test (2 problems)" in said
    )


def test_tests_that_are_all_too_weak(tmp_path, failed):
    held = json.dumps({"inputs": ["1\n", "2\n"], "outputs": ["1\n", "1\n"]})
    write(tmp_path / "train-0.jsonl", [taco_row(i, input_output=held) for i in range(6)])
    write(tmp_path / "valid-0.jsonl", [taco_row(i) for i in range(20, 40)])
    said = failed("task=taco", f"task.path={tmp_path}")
    assert "the train split is empty: the tests of 6 problems are too weak for it; " in said
    assert "task.min_hidden_tests=0 keeps them" in said
    assert said.endswith("left out: one output for all tests (of train only) 6")


def test_a_data_set_of_test_problems_alone_says_how_to_evaluate_on_them(tmp_path, failed):
    write(tmp_path / "test-0.jsonl", [taco_row(i) for i in range(6)])
    said = failed("task=taco", f"task.path={tmp_path}", "steps=0")
    assert "the choose split is empty: the data set has no rows for it; with steps=0, " in said
    assert "eval.split=test (6 problems) is evaluated" in said


def test_a_folder_without_training_rows_names_the_splits_that_it_has(tmp_path, failed):
    numbers = iter(range(99))
    for name, count in (("valid", 12), ("choose", 5), ("test", 6)):
        write(tmp_path / f"{name}.jsonl", [taco_row(next(numbers)) for _ in range(count)])
    said = failed("task=taco", f"task.path={tmp_path}")
    assert "the train split is empty: the data set has no rows for it; with steps=0, " in said
    assert "eval.split=tune (12 problems) or eval.split=choose (5 problems) or" in said


def test_rows_that_give_no_problem_at_all(tmp_path, failed):
    path = write(tmp_path / "rows.jsonl", [taco_row(i, input_output="") for i in range(3)])
    said = failed("task=taco", f"task.path={path}")
    assert "split is empty; left out: input_output is empty 3" in said and "hash" not in said
