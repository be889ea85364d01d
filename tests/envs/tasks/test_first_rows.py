"""A wrong file of rows is found by its first rows, with the numbers of its lines."""

import json

import pyarrow as pa
import pyarrow.parquet
import pytest

from envs.tasks import first_rows
from envs.tasks.first_rows import FIRST_ROWS, check_first_rows
from envs.tasks.task_cli import task_config

GOOD = {
    "question": "Add one.",
    "input_output": json.dumps({"inputs": ["1\n", "2\n"], "outputs": ["2\n", "3\n"]}),
    "solutions": "[]",
}


def check(tmp_path, text, name="rows.jsonl", *overrides):
    (tmp_path / name).write_text(text)
    check_first_rows(task_config(["task=taco", f"task.path={tmp_path / name}", *overrides]))


def test_one_good_row_among_the_first_is_enough(tmp_path):
    bad = json.dumps({"question": "q"})
    check(tmp_path, "\n".join([*[bad] * (FIRST_ROWS - 1), json.dumps(GOOD)]))


def test_lines_are_numbered_as_in_an_editor_and_the_columns_are_named(tmp_path):
    text = "\n" + json.dumps({"statement": "q"}) + "\n\nnot json\n"
    with pytest.raises(ValueError, match=r"line 2: .*; line 4: the line is not") as raised:
        check(tmp_path, text)
    assert "its columns are statement" in str(raised.value)
    assert "task.path=" in str(raised.value) and "\n" not in str(raised.value)


def test_many_bad_rows_are_counted(tmp_path):
    with pytest.raises(ValueError, match=f"first {FIRST_ROWS} rows .*; {FIRST_ROWS - 3} more like"):
        check(tmp_path, "{}\n" * 100)


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("rows.jsonl", "", "has no row"),
        ("rows.txt", "x", r"task\.path=.*/rows\.txt: not a file of rows"),
        ("rows.parquet", "no parquet", r"task\.path=.*: rows\.parquet: not a whole \.parquet file"),
    ],
)
def test_a_file_that_holds_no_rows_is_one_line(tmp_path, name, text, said):
    with pytest.raises(ValueError, match=said):
        check(tmp_path, text, name)


def test_a_missing_path_a_folder_without_files_and_a_second_data_set_are_looked_at(tmp_path):
    with pytest.raises(ValueError, match="no such file or folder"):
        check_first_rows(task_config(["task=taco", f"task.path={tmp_path}/none"]))
    with pytest.raises(ValueError, match="no train"):
        check_first_rows(task_config(["task=taco", f"task.path={tmp_path}"]))
    good = json.dumps(GOOD) + "\n"
    with pytest.raises(ValueError, match=r"task\.test_path=.*no such file"):
        check(tmp_path, good, "rows.jsonl", f"++task.test_path={tmp_path}/none")


def test_the_hub_and_generated_tasks_pass_without_a_look():
    check_first_rows(task_config(["task=taco"]))
    check_first_rows(task_config(["task=mini"]))


def levels(hard_at: int) -> list[dict]:
    """Rows whose first are EASY, and one HARD."""
    return [GOOD | {"difficulty": "HARD" if i == hard_at else "EASY"} for i in range(hard_at + 1)]


def test_a_difficulty_is_searched_in_all_rows(tmp_path):
    text = "".join(json.dumps(row) + "\n" for row in levels(3 * FIRST_ROWS))
    check(tmp_path, text, "rows.jsonl", "task.difficulty=[easy,hard]")
    with pytest.raises(ValueError, match=r"^task\.difficulty=EAZY: no row .*: EASY, HARD$"):
        check(tmp_path, text, "rows.jsonl", "task.difficulty=EAZY")


def test_of_a_parquet_file_the_column_alone_is_searched(tmp_path, monkeypatch):
    monkeypatch.setattr(first_rows, "SEARCHED_BYTES", 0)
    file = tmp_path / "rows.parquet"
    pa.parquet.write_table(pa.Table.from_pylist(levels(3)), file)
    given = ["task=taco", f"task.path={file}"]
    check_first_rows(task_config([*given, "task.difficulty=HARD"]))
    with pytest.raises(ValueError, match="no row of task=taco has it"):
        check_first_rows(task_config([*given, "task.difficulty=HART"]))


def test_a_difficulty_that_cannot_be_searched_passes(tmp_path, monkeypatch):
    """Opening the task, which reads every row, then decides."""
    good = json.dumps(GOOD) + "\n"
    check(tmp_path, good, "rows.jsonl", "task.difficulty=EAZY")  # no row has any difficulty
    monkeypatch.setattr(first_rows, "SEARCHED_BYTES", 100)
    text = "".join(json.dumps(row) + "\n" for row in levels(3))
    check(tmp_path, text, "rows.jsonl", "task.difficulty=EAZY")
