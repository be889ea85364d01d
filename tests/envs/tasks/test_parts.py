"""Several data sets as one task: split by split, each with keys of its own."""

import pytest
from envs.tasks.first_rows import check_first_rows

from envs.tasks import open_task
from envs.tasks.config import TaskConfig
from tests.envs.tasks.dataset_rows import code_contests_row, every_problem, names, taco_row, write


def joined(*parts, **changed):
    return TaskConfig(name="joined", parts=list(parts), **changed)


@pytest.fixture
def files(tmp_path):
    taco = [taco_row(i, difficulty="EASY" if i % 2 else "HARD") for i in range(100)]
    contests = [code_contests_row(i, f"contest {i}") for i in range(100, 140)]
    return (
        write(tmp_path / "taco.jsonl", taco),
        write(tmp_path / "contests.jsonl", contests),
    )


def test_parts_are_joined_split_by_split_with_keys_of_their_own(files):
    parts = f"taco path={files[0]} difficulty=[EASY]", f"code_contests path='{files[1]}'"
    task = open_task(joined(*parts))
    alone = [open_task(joined(part)) for part in parts]
    assert len(alone[0].train) > 20 and len(alone[1].train) > 10
    for split in ("train", "tune", "choose", "test"):
        each = [names(getattr(one, split)) for one in alone]
        assert names(getattr(task, split)) == each[0] | each[1]
    assert task.rows_read == 140
    assert task.left_out["not of task.difficulty"] == 50
    assert task.data_hash != alone[0].data_hash


def test_a_problem_of_one_part_does_not_stand_in_the_test_split_of_another(tmp_path, files):
    task = open_task(joined(f"taco path={files[0]}"))
    again = [
        taco_row(0, question=problem.statement) for problem in list(task.test)[:3]
    ]  # elsewhere these are problems to train on
    (tmp_path / "more").mkdir()
    write(tmp_path / "more" / "train.jsonl", again)
    write(tmp_path / "more" / "test.jsonl", [taco_row(500)])
    both = open_task(joined(f"taco path={files[0]}", f"apps path={tmp_path / 'more'}"))
    assert both.left_out["stands in another split too"] == 3
    statements = [problem.statement for problem in every_problem(both)]
    assert len(set(statements)) == len(statements)


@pytest.mark.parametrize(
    ("parts", "message"),
    [
        (["tacoo"], r"task.parts\[0\]=tacoo: task=tacoo: no such choice; did you mean 'taco'"),
        (["taco pth=x"], r"task.parts\[0\]=taco pth=x: unknown key 'task.pth'; did you mean"),
        (["mini"], "task=mini has no rows; a part is a data set"),
        (["taco path='x"], r"task.parts\[0\]=taco path='x: No closing quotation"),
        ([""], r"task.parts\[0\]="),
    ],
)
def test_a_wrong_part_is_named(parts, message):
    with pytest.raises(ValueError, match=message):
        open_task(joined(*parts))


def test_the_same_data_set_twice_is_an_error(files):
    part = f"taco path={files[0]}"
    with pytest.raises(ValueError, match="are in several parts of task=joined"):
        open_task(joined(part, part, decontaminate=False))


def test_a_missing_file_of_a_part_is_found_before_anything_is_read(files):
    with pytest.raises(ValueError, match=r"task.path=none.jsonl"):
        check_first_rows(joined(f"taco path={files[0]}", "apps path=none.jsonl"))
