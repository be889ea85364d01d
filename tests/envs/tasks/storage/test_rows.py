"""Rows in the schemas of TACO, CodeContests and APPS, with the oddities that they really have."""

import json
import os
from pathlib import Path

import pytest

from envs.problem import Problem, Test
from envs.tasks.loaders.code_contests import problem as code_contests_problem
from envs.tasks.loaders.taco import problem as taco_problem
from envs.tasks.parsers import SkipRow, stdin_tests
from envs.tasks.rows import Converter, load_problems
from tests.envs.tasks.dataset_rows import converter_of

DATA = Path(os.environ.get("SPO_BENCH_DATA") or Path(__file__).parents[5] / "shared" / "data")
needs_data = pytest.mark.skipif(not DATA.is_dir(), reason=f"no data rows in {DATA}")


def taco(inputs, outputs, **columns):
    held = {"inputs": inputs, "outputs": outputs}
    for key in ("fn_name",):
        if key in columns:
            held[key] = columns.pop(key)
    return {"question": "Add.", "input_output": json.dumps(held), "solutions": "[]", **columns}


def code_contests(**columns):
    return {
        "description": "Add.",
        "public_tests": {"input": ["1 2\n"], "output": ["3\n"]},
        "private_tests": {"input": ["1 2\n", "5 5\n"], "output": ["3\n", "10\n"]},
        "generated_tests": {"input": [], "output": []},
        **columns,
    }


def test_taco_texts_and_lists_of_lines_are_the_same_test():
    text = taco_problem(taco(["1\n2\n"], ["3\n"]), "p")
    lines = taco_problem(taco([["1", "2"]], [["3"]]), "p")
    assert text.tests == lines.tests == (Test("1\n2\n", "3\n"),)
    assert taco_problem(taco([[[1, 2], 3]], [7]), "p").tests == (Test("1 2\n3\n", "7\n"),)


def test_lines_of_other_systems_end_as_python_reads_them():
    assert taco_problem(taco(["a\r\nb\rc\r\n"], ["3"]), "p").tests == (Test("a\nb\rc\n", "3"),)
    row = code_contests(public_tests={"input": ["a\r\nb"], "output": ["3"]})
    assert code_contests_problem(row, "p").samples == (Test("a\nb", "3"),)


def test_taco_columns():
    row = taco(
        ["1"],
        ["2"],
        solutions='["print(2)", "", "print(1+1)"]',
        tags="['Math', 'Greedy algorithms']",
        difficulty="EASY",
        source="codeforces",
        time_limit="2.0 seconds",
        memory_limit="256.0 megabytes",
        starter_code="",
    )
    problem = taco_problem(row, "taco/7")
    assert problem.solutions == ("print(2)", "print(1+1)")
    assert problem.tags == ("Math", "Greedy algorithms")
    assert (problem.time_limit_s, problem.memory_limit_mb) == (2.0, 256)
    assert (problem.name, problem.difficulty, problem.source) == ("taco/7", "EASY", "codeforces")
    assert (problem.checker, problem.fn_name, problem.samples) == ("tokens", None, ())


def test_integers_of_thousands_of_digits_survive():
    digits = "9" * 7000
    row = {"question": "", "input_output": f'{{"inputs": [{digits}], "outputs": ["{digits}"]}}'}
    assert taco_problem(row, "p").tests == (Test(f"{digits}\n", digits),)
    row["input_output"] = f'{{"fn_name": "f", "inputs": [[{digits}]], "outputs": [[{digits}]]}}'
    assert taco_problem(row, "p").tests == (Test(f"[{digits}]", digits),)


@pytest.mark.parametrize(
    ("columns", "name"),
    [
        ({"fn_name": "add"}, "add"),
        ({"fn_name": "add", "starter_code": "def other(a):\n\t"}, "add"),
        ({"starter_code": "def add(a,b):\n\t"}, "add"),
        (
            {"starter_code": "class Solution:\n    def add(self, a: int, b) -> int:\n        "},
            "add",
        ),
        ({"starter_code": "class A:\n def __init__(self):\n  pass\n def add(self):"}, "add"),
    ],
)
def test_a_function_name_or_starter_code_means_call_based(columns, name):
    problem = taco_problem(taco([[1, 2], ["a", "b"]], [[3], ["ab"]], **columns), "p")
    assert (problem.fn_name, problem.checker) == (name, "call")
    assert problem.tests == (Test("[1, 2]", "3"), Test('["a", "b"]', '"ab"'))


def test_returned_lists_are_unwrapped_only_where_every_output_is_wrapped():
    rows = taco([[1], [2]], [[1], [1, 2]], fn_name="f")
    assert [test.output for test in taco_problem(rows, "p").tests] == ["[1]", "[1, 2]"]
    rows = taco([[1], [2]], [[[1]], [[1, 2]]], fn_name="f")
    assert [test.output for test in taco_problem(rows, "p").tests] == ["[1]", "[1, 2]"]


def test_call_arguments_may_be_lines_of_json():
    problem = taco_problem(taco(['[1, 2]\n"x"'], ["[2]"], fn_name="f"), "p")
    assert problem.tests == (Test('[[1, 2], "x"]', "[2]"),)


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        ({"input_output": ""}, "input_output is empty"),
        ({"input_output": None}, "input_output is not an object"),
        ({"input_output": "{'inputs': []}"}, "input_output is not JSON"),
        ({"input_output": "[" * 100_000}, "input_output is not JSON"),
        (taco([], []), "no tests"),
        (taco(["1"], []), "inputs and outputs differ in number"),
        (taco({"a": 1}, ["1"]), "inputs and outputs are not lists"),
        (taco(["1", "2"], ["", "\n"]), "all expected outputs are empty"),
        (taco(["1"], ["1"], starter_code="# write here"), "starter code without a function"),
        (taco(["not json"], ["1"], fn_name="f"), "an argument is not JSON"),
        (taco(["1"], ["1"], solutions="[broken"), "solutions is not JSON"),
    ],
)
def test_taco_rows_that_cannot_be_judged_say_why(row, reason):
    with pytest.raises(SkipRow, match=f"^{reason}$"):
        taco_problem(row, "p")


def test_code_contests_columns():
    row = code_contests(
        source=2,
        difficulty=9,
        cf_tags=["math", ""],
        time_limit={"seconds": 1, "nanos": 500_000_000},
        memory_limit_bytes=256_000_000,
        input_file="",
        output_file="",
        solutions={"language": [1, 3, 2, 3], "solution": ["py2", "a", "cpp", "b"]},
        incorrect_solutions={"language": [4, 3], "solution": ["java", "c"]},
    )
    problem = code_contests_problem(row, "p")
    assert problem.samples == (Test("1 2\n", "3\n"),)
    assert problem.tests == (Test("1 2\n", "3\n"), Test("5 5\n", "10\n"))
    assert problem.solutions == ("a", "b")
    assert problem.incorrect_solutions == ("c",)
    assert (problem.time_limit_s, problem.memory_limit_mb) == (1.5, 245)
    assert (problem.source, problem.tags, problem.difficulty) == ("CODEFORCES", ("math",), "9")


def test_code_contests_unknowns():
    problem = code_contests_problem(code_contests(time_limit=None, memory_limit_bytes=0), "p")
    assert (problem.time_limit_s, problem.memory_limit_mb) == (None, None)
    assert problem.solutions == problem.incorrect_solutions == ()


@pytest.mark.parametrize(
    ("columns", "reason"),
    [
        ({"input_file": "in.txt"}, "reads a file"),
        ({"output_file": "out.txt"}, "writes a file"),
        ({"public_tests": None, "private_tests": {"input": [], "output": []}}, "no tests"),
        ({"public_tests": {"input": ["1"], "output": []}}, "inputs and outputs differ in number"),
    ],
)
def test_code_contests_rows_that_cannot_be_judged_say_why(columns, reason):
    with pytest.raises(SkipRow, match=f"^{reason}$"):
        code_contests_problem(code_contests(**columns), "p")


def test_json_lines_and_parquet_hold_the_same_problems(tmp_path):
    pandas = pytest.importorskip("pandas")
    rows = [
        code_contests(name="a"),
        code_contests(name="b", input_file="x"),
        code_contests(name="a"),
    ]
    lines, table = tmp_path / "rows.jsonl", tmp_path / "rows.parquet"
    lines.write_text("\n".join(map(json.dumps, rows)) + "\n\n{broken\n[1]\n")
    pandas.DataFrame(rows).to_parquet(table)
    from_lines, skipped = load_problems(converter_of("code_contests"), lines)
    from_table, skipped_there = load_problems(converter_of("code_contests"), table)
    assert [p.hash for p in from_lines] == [p.hash for p in from_table]
    assert [p.name for p in from_lines] == ["code_contests/a", "code_contests/a#2"]
    assert skipped == {"reads a file": 1, "the line is not a JSON object": 2}
    assert skipped_there == {"reads a file": 1}


def test_another_kind_of_file_is_an_error(tmp_path):
    with pytest.raises(ValueError, match=r"rows\.csv: neither"):
        load_problems(converter_of("taco"), tmp_path / "rows.csv")


@needs_data
@pytest.mark.parametrize(
    ("task", "name", "problems", "skipped"),
    [
        ("taco", "taco_stdin", 400, {}),
        ("taco", "taco_special_judge", 60, {}),
        ("taco", "taco_call_based_no_tests", 0, {"no tests": 25}),
        ("code_contests", "code_contests_test", 100, {}),
        ("code_contests", "code_contests_train", 10, {}),
        ("code_contests", "code_contests_olympiad", 20, {}),
        ("apps", "apps_stdin_with_wrong", 24, {}),
    ],
)
def test_real_rows(task, name, problems, skipped):
    found, reasons = load_problems(converter_of(task), DATA / f"{name}.jsonl")
    assert (len(found), reasons) == (problems, skipped)
    assert len({problem.name for problem in found}) == problems


@needs_data
def test_nearly_all_special_judge_problems_are_recognised():
    found, _ = load_problems(converter_of("taco"), DATA / "taco_special_judge.jsonl")
    exact = [problem.name for problem in found if problem.checker == "tokens"]
    # Its statement gives no sign that another case is right, too.
    assert exact == ["taco/00005"]


def test_a_call_whose_value_is_no_json_is_left_out_and_counted(tmp_path):
    def build(row, name):
        tests = (Test("[1]", "1"), Test("[2]", row["value"]))
        return Problem(name, "Call it.", (), tests, checker="call", fn_name="f")

    file = tmp_path / "rows.jsonl"
    file.write_text("\n".join(json.dumps({"value": value}) for value in ("2", "None", "(1, 2)")))
    problems, skipped = load_problems(Converter(build, "own", ""), file)
    assert [problem.name for problem in problems] == ["own/00000"]
    assert skipped == {"an expected value is not JSON": 2}


def test_what_a_loader_gets_wrong_costs_its_row_and_no_more(tmp_path):
    def build(row, name):
        assert row["sound"], "as html.parser does"
        tests = stdin_tests(row["inputs"], ["1", "2"])
        return Problem(name, "Print it.", (), tests, checker=row["checker"])

    rows = [
        {"sound": True, "checker": "floats absolute=0.1 relative=0", "inputs": ["1", 2]},
        {"sound": True, "checker": "flaots", "inputs": ["1", "2"]},
        {"sound": True, "checker": "floats absolute=2.0 relative=0", "inputs": ["1", "2"]},
        {"sound": True, "checker": "tokens", "inputs": ["1", None]},
        {"sound": False},
    ]
    file = tmp_path / "rows.jsonl"
    file.write_text("\n".join(map(json.dumps, rows)))
    problems, skipped = load_problems(Converter(build, "own", ""), file)
    assert [problem.name for problem in problems] == ["own/00000"]
    assert skipped == {
        "there is no checker 'flaots'": 1,
        "there is no checker 'floats absolute=2.0 relative=0'": 1,
        "a test is neither a text nor a list of lines": 1,
        "a column cannot be read (AssertionError)": 1,
    }
