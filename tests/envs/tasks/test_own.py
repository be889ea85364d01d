"""Rows in a schema of one's own, read through a mapping of columns."""

import json

import pandas
import pytest

from envs.problem import CheckerProgram, Test
from envs.tasks import open_task
from envs.tasks.loaders.own import problem
from envs.tasks.parsers import SkipRow
from envs.tasks.task import FieldsConfig, task_config
from tests.envs.tasks.dataset_rows import every_problem, write

BASE = {"statement": "question", "inputs": "ins", "outputs": "outs"}


def of(row, **columns):
    return problem(row, "own/00007", FieldsConfig(**BASE | columns))


def test_columns_go_where_the_mapping_says():
    row = {
        "question": "Add.",
        "ins": ["1 2\n", "3 4\n"],
        "outs": ["3\n", "7\n"],
        "shown": {"in": ["0 0\n"], "out": ["0\n"]},
        "id": 17,
        "right": ["print(1)"],
        "limits": {"s": 1.5, "mb": "1 GB"},
        "level": 3,
        "labels": ["Math"],
    }
    found = of(
        row,
        sample_inputs="shown.in",
        sample_outputs="shown.out",
        name="id",
        solutions="right",
        time_limit="limits.s",
        memory_limit="limits.mb",
        difficulty="level",
        tags="labels",
    )
    assert found.samples == (Test("0 0\n", "0\n"),)
    assert found.tests == (Test("0 0\n", "0\n"), Test("1 2\n", "3\n"), Test("3 4\n", "7\n"))
    assert (found.name, found.statement, found.checker) == ("own/17", "Add.", "tokens")
    assert found.solutions == ("print(1)",) and found.incorrect_solutions == ()
    assert (found.time_limit_s, found.memory_limit_mb) == (1.5, 1024)
    assert (found.difficulty, found.tags) == ("3", ("Math",))


def test_a_row_may_bring_a_checker_program():
    row = {"question": "Any two.", "ins": ["5"], "outs": ["1 4"], "check": "print(1)"}
    found = of(row, checker="check")
    assert found.checker == "program"
    assert found.checker_program == CheckerProgram("python", "print(1)")
    found = of(row | {"check": (source := '#include "testlib.h"')}, checker="check")
    assert found.checker_program == CheckerProgram("testlib", source)
    assert of(row | {"check": None}, checker="check").checker == "tokens"
    with pytest.raises(SkipRow, match="a checker program for a function"):
        of(row | {"f": "solve", "ins": ["[1]"], "outs": ["[1, 4]"]}, checker="check", fn_name="f")


CASES = [{"in": "1\n", "out": "3\n"}, {"in": "2\n", "out": "4\n"}]
NESTED = {"inputs": "tests.in", "outputs": "tests.out"}


@pytest.mark.parametrize(
    ("row", "columns"),
    [
        ({"ins": ["1\n", "2\n"], "outs": ["3\n", "4\n"]}, {}),
        ({"ins": '["1\\n", "2\\n"]', "outs": '["3\\n", "4\\n"]'}, {}),
        ({"tests": CASES}, NESTED),
        ({"tests": json.dumps(CASES)}, NESTED),
        ({"tests.in": ["1\n", "2\n"], "outs": ["3\n", "4\n"]}, {"inputs": "tests.in"}),
    ],
)
def test_the_usual_ways_of_writing_tests_are_the_same(row, columns):
    assert of({"question": "Q", **row}, **columns).tests == (Test("1\n", "3\n"), Test("2\n", "4\n"))


def test_a_function_is_called_with_its_arguments():
    row = {"question": "Add.", "ins": [[1, 2]], "outs": [3], "f": "add"}
    found = of(row, fn_name="f")
    assert (found.fn_name, found.checker, found.tests) == ("add", "call", (Test("[1, 2]", "3"),))


@pytest.mark.parametrize("name", ["first word", "Solution.solve", "class", "2nd", "add()", 5])
def test_what_cannot_be_the_name_of_a_function_is_refused(name):
    row = {"question": "Add.", "ins": [[1, 2]], "outs": [3], "f": name}
    with pytest.raises(SkipRow, match=r"^f is not the plain name of a function$"):
        of(row, fn_name="f")


@pytest.mark.parametrize("io", [[["5", "10"]], [["1 2", "3"]], [[5, 10]], "5", '["5"]'])
def test_a_list_of_pairs_has_no_names_for_a_dot_to_enter(io):
    with pytest.raises(SkipRow, match=r"io\.0: where 0 is looked for"):
        of({"question": "Double.", "io": io}, inputs="io.0", outputs="io.1")


def test_a_case_without_its_output_is_named():
    cases = {"inputs": "io.in", "outputs": "io.out"}
    row = {"question": "Q", "io": [{"in": "1", "out": "1"}, {"in": "2"}]}
    with pytest.raises(SkipRow, match=r"^io.out is missing in case 2$"):
        of(row, **cases)
    with pytest.raises(SkipRow, match=r"^io.out is missing in case 2$"):
        of(row | {"f": "add"}, fn_name="f", **cases)
    for name in ({}, {"f": "add"}):  # a function might return None
        with pytest.raises(SkipRow, match=r"^io.out is missing in case 1$"):
            of(row | name | {"io": [{"in": [3]}]}, fn_name="f", **cases)
    shown = {"sample_inputs": "eg.in", "sample_outputs": "eg.out"}
    whole = {"question": "Q", "f": "add", "io": [{"in": [1], "out": 1}, {"in": [2], "out": 2}]}
    with pytest.raises(SkipRow, match=r"^eg.out is missing in case 1$"):
        of(whole | {"eg": [{"in": [1]}]}, fn_name="f", **cases, **shown)
    for none in ({}, {"eg": []}, {"eg": [{}]}):
        assert of(whole | none, fn_name="f", **cases, **shown).samples == ()
    row["io"][1]["out"] = None
    with pytest.raises(SkipRow, match=r"^io.out is null in case 2$"):
        of(row, **cases)
    row["io"][0]["in"] = row["io"][1]["in"] = []
    assert of(row | {"f": "add"}, fn_name="f", **cases).tests[1] == Test("[]", "null")


ROWS = [
    {"question": f"Print {i} ones.", "ins": ["1\n"], "outs": [f"{i}\n"]}
    | {"tests": [{"in": "1\n"}], "limit": None}
    for i in range(20)
]
GIVEN = [f"task.fields.{key}={column}" for key, column in BASE.items()]
GIVEN.append("task.min_hidden_tests=0")  # the rows have one test each


def opened(path, *given):
    return open_task(task_config(["task=own", f"task.path={path}", *GIVEN, *given]))


def test_a_column_may_be_empty_or_stand_in_few_rows(tmp_path):
    path = write(tmp_path / "rows.jsonl", [*ROWS * 5, ROWS[0] | {"check": "print(1)"}])
    task = opened(path, "task.fields.time_limit=limit", "task.fields.checker=check")
    assert sum(bool(problem.checker_program) for problem in every_problem(task)) == 1
    assert task.train[0].time_limit_s is None


def test_a_csv_file_has_json_in_its_cells(tmp_path):
    table = pandas.DataFrame(ROWS)
    for column in ("ins", "outs", "tests"):
        table[column] = table[column].map(json.dumps)
    table.to_csv(tmp_path / "rows.csv", index=False, encoding="utf-8-sig")  # as Excel saves it
    with (tmp_path / "rows.csv").open("a") as file:
        file.write("one,cell,or,six,too,many\n")
    task, same = opened(tmp_path / "rows.csv"), opened(write(tmp_path / "rows.jsonl", ROWS))
    assert task.left_out == {"a row has more or fewer cells than the header": 1}
    assert task.data_hash == same.data_hash and len(every_problem(task)) == 20
    table.to_csv(tmp_path / "other.csv", index=False, sep=";")
    assert opened(tmp_path / "other.csv").data_hash == same.data_hash
    table.loc[3, "ins"] = '["1\\n", "2'
    table.to_csv(tmp_path / "broken.csv", index=False)
    assert opened(tmp_path / "broken.csv").left_out == {
        "ins begins with [ and is not a list in JSON": 1
    }


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("question,ins,outs,ins\nq,1,2,3\n", "its header has the column 'ins' twice"),
        ("question,ins,outs\n", "it has no row that could be read"),
        ("question,ins,outs\nq,1,2\n".encode("utf-16"), "it is UTF-16: save it as UTF-8"),
    ],
)
def test_a_csv_file_that_cannot_be_used(tmp_path, text, said):
    (tmp_path / "rows.csv").write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(ValueError, match=said):
        opened(tmp_path / "rows.csv", "task.fields.outputs=null")


def test_a_column_may_stand_in_one_file_of_a_folder_alone(tmp_path):
    write(tmp_path / "train.jsonl", [row | {"wrong": ["print(0)"]} for row in ROWS[:15]])
    write(tmp_path / "test.jsonl", ROWS[15:])
    mapped = "task.fields.incorrect_solutions=wrong"
    task = opened(tmp_path, mapped)
    assert len(every_problem(task)) == 20 and task.train[0].incorrect_solutions == ("print(0)",)
    both = [f"task.path={tmp_path}/train.jsonl", f"task.test_path={tmp_path}/test.jsonl"]
    assert len(opened(tmp_path, mapped, *both).test) == 5
    with pytest.raises(ValueError, match=r"task\.fields\.tags=topics: no such column in .*it has"):
        opened(tmp_path, "task.fields.tags=topics")


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        (["task.fields.outputs=answers"], ["fields.outputs=answers", "it has question, ins, outs"]),
        (["task.fields.outputs=tests.ot"], ["=tests.ot: no such column", "tests.in, limit"]),
        (["task.fields.tags=topics"], ["task.fields.tags=topics", "no such column", "rows.jsonl"]),
        (
            ["task.fields.inputs=null"],
            ["task.fields.inputs has no value", "rows.jsonl", "it has question, ins, outs"],
        ),
        (["task.fields.sample_inputs=ins"], ["sample_inputs and sample_outputs", "both or none"]),
        (["task.fields.ouputs=x"], ["unknown key 'task.fields.ouputs'"]),
        (["task.path=null"], ["task=own needs task.path"]),
    ],
)
def test_mistakes_are_one_line(tmp_path, changed, said):
    path = write(tmp_path / "rows.jsonl", ROWS)
    with pytest.raises(ValueError) as error:
        open_task(task_config(["task=own", f"task.path={path}", *GIVEN, *changed]))
    assert all(word in str(error.value) for word in said), str(error.value)
    assert "\n" not in str(error.value)


def test_another_mapping_is_converted_anew(tmp_path):
    path = write(tmp_path / "rows.jsonl", [row | {"text": f"Other {row['outs']}"} for row in ROWS])
    assert opened(path).train[0].statement.startswith("Print")
    other = opened(path, "task.fields.statement=text")
    assert other.train[0].statement.startswith("Other")
    with pytest.raises(ValueError, match=r"task\.fields is for task=own"):
        open_task(task_config(["task=taco", f"task.path={path}", "+task.fields.statement=x"]))
