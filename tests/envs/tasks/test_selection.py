"""What a task takes of a prepared data set: filters, quality files, problems read when asked."""

import csv

import pytest

from envs.tasks import open_task
from envs.tasks.config import FilterConfig
from envs.tasks.stored import StoredProblems, statement_hash
from tests.envs.tasks.dataset_rows import config, every_problem, taco_row, write

LEVELS = ("EASY", "HARD", "easy")


@pytest.fixture
def file(tmp_path):
    rows = [
        taco_row(
            i, difficulty=LEVELS[i % 3], source="codechef" if i % 2 else "aizu", tags="['Math']"
        )
        for i in range(60)
    ]
    return write(tmp_path / "rows.jsonl", rows)


def everything(task):
    return every_problem(task)


@pytest.mark.parametrize(
    ("wanted", "count", "left_out"),
    [
        ({}, 60, {}),
        ({"difficulty": ["Easy"]}, 40, {"not of task.filter.difficulty": 20}),
        (
            {"difficulty": ["easy", "hard"], "source": ["aizu"]},
            30,
            {"not of task.filter.source": 30},
        ),
        ({"tags": ["math", "graphs"]}, 60, {}),
    ],
)
def test_filters_keep_what_has_one_of_the_values(file, wanted, count, left_out):
    task = open_task(config("taco", file, filter=FilterConfig(**wanted)))
    assert len(everything(task)) == count and task.left_out == left_out


def test_a_quality_file_keeps_what_it_calls_good(file, tmp_path):
    problems = everything(open_task(config("taco", file)))
    quality = tmp_path / "quality.csv"
    with quality.open("w", newline="") as lines:
        writer = csv.DictWriter(lines, ["statement", "good"])
        writer.writeheader()
        hashes = sorted({statement_hash(problem.statement) for problem in problems})
        writer.writerows({"statement": each, "good": "true"} for each in hashes)
    task = open_task(config("taco", file, quality=str(quality)))
    assert len(everything(task)) == 60
    quality.write_text("statement,good\n" + "".join(f"{each},false\n" for each in hashes))
    task = open_task(config("taco", file, quality=str(quality)))
    assert task.left_out == {"not good by task.quality": 60}


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("none.csv", None, "no such file"),
        ("quality.txt", "x", ".parquet or .csv"),
        ("quality.csv", "a,b\n1,2\n", "not a file of envs.validate"),
        ("quality.parquet", "not parquet", "not a file of envs.validate"),
    ],
)
def test_a_quality_file_that_is_none_is_said(file, tmp_path, name, text, said):
    if text is not None:
        (tmp_path / name).write_text(text)
    with pytest.raises(ValueError) as error:
        open_task(config("taco", file, quality=str(tmp_path / name)))
    assert f"task.quality={tmp_path / name}" in str(error.value) and said in str(error.value)


def test_problems_are_a_sequence_that_reads_what_it_is_asked_for(file):
    task = open_task(config("taco", file))
    assert isinstance(task.train, StoredProblems)
    assert task.train[0] == task.train[0] and task.train[-1] == list(task.train)[-1]
    assert list(task.train[1:4]) == list(task.train)[1:4]
    told = next(task.train.without_tests())
    assert told.statement == task.train[0].statement and told.tests == told.solutions == ()
    with pytest.raises(IndexError):
        task.train[len(task.train)]
