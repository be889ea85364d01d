"""Rows in the schemas of contest data sets, with the oddities that they really have."""

import base64
import json
import pickle
import shutil
import zlib
from dataclasses import replace

import pytest

from envs.judge.extract import as_response
from envs.judge.judge import Judge, JudgeConfig, Submission
from envs.problem import CheckerProgram, Test, Verdict
from envs.sandbox import SandboxConfig, open_sandbox
from envs.tasks.checker_rules import comparing_checker
from envs.tasks.loaders import contests
from envs.tasks.parsers import SkipRow
from tests.envs.judge import checkers
from tests.envs.tasks import contest_rows as made
from tests.envs.tasks.contest_rows import ADD, ADD_FUNCTION, STARTER, SUBTRACT
from tests.envs.tasks.dataset_rows import load_problems, write


def taco_row(inputs, outputs, **columns):
    held = {"inputs": inputs, "outputs": outputs}
    if "fn_name" in columns:
        held["fn_name"] = columns.pop("fn_name")
    return {"question": "Add.", "input_output": json.dumps(held), "solutions": "[]", **columns}


def code_contests_row(**columns):
    return {
        "description": "Add.",
        "public_tests": {"input": ["1 2\n"], "output": ["3\n"]},
        "private_tests": {"input": ["1 2\n", "5 5\n"], "output": ["3\n", "10\n"]},
        "generated_tests": {"input": [], "output": []},
        **columns,
    }


def test_columns_of_taco():
    row = taco_row(
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
    found = contests.taco(row, "taco/7")
    assert found.solutions == ("print(2)", "print(1+1)")
    assert found.tags == ("Math", "Greedy algorithms")
    assert (found.time_limit_s, found.memory_limit_mb) == (2.0, 256)
    assert (found.name, found.difficulty, found.source) == ("taco/7", "EASY", "codeforces")
    assert (found.checker, found.fn_name, found.samples) == ("tokens", None, ())


NINES = "9" * 7000


@pytest.mark.parametrize(
    ("row", "tests"),
    [
        (taco_row(["1\n2\n"], ["3\n"]), [("1\n2\n", "3\n")]),
        (taco_row([["1", "2"]], [["3"]]), [("1\n2\n", "3\n")]),
        (taco_row([[[1, 2], 3]], [7]), [("1 2\n3\n", "7\n")]),
        (taco_row(["a\r\nb\rc\r\n"], ["3"]), [("a\nb\rc\n", "3")]),
        ({"input_output": f'{{"inputs": [{NINES}], "outputs": ["1"]}}'}, [(f"{NINES}\n", "1")]),
        (
            {"input_output": f'{{"fn_name": "f", "inputs": [[{NINES}]], "outputs": [[1]]}}'},
            [(f"[{NINES}]", "1")],
        ),
        # returned lists are unwrapped only where every output is wrapped
        (taco_row([[1], [2]], [[1], [1, 2]], fn_name="f"), [("[1]", "[1]"), ("[2]", "[1, 2]")]),
        (taco_row([[1], [2]], [[[1]], [[3]]], fn_name="f"), [("[1]", "[1]"), ("[2]", "[3]")]),
        (taco_row(['[1, 2]\n"x"'], ["[2]"], fn_name="f"), [('[[1, 2], "x"]', "[2]")]),
    ],
)
def test_tests_of_taco(row, tests):
    found = contests.taco({"question": "", **row}, "p")
    assert found.tests == tuple(Test(*test) for test in tests)


@pytest.mark.parametrize(
    "columns",
    [
        {"fn_name": "add"},
        {"fn_name": "add", "starter_code": "def other(a):\n\t"},
        {"starter_code": "def add(a,b):\n\t"},
        {"starter_code": "class Solution:\n    def add(self, a: int, b) -> int:\n        "},
        {"starter_code": "class A:\n def __init__(self):\n  pass\n def add(self):"},
    ],
)
def test_a_function_name_or_starter_code_means_call_based(columns):
    found = contests.taco(taco_row([[1, 2], ["a", "b"]], [[3], ["ab"]], **columns), "p")
    assert (found.fn_name, found.checker) == ("add", "call")
    assert found.tests == (Test("[1, 2]", "3"), Test('["a", "b"]', '"ab"'))


def test_columns_of_code_contests():
    row = code_contests_row(
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
    found = contests.code_contests(row, "p")
    assert found.samples == (Test("1 2\n", "3\n"),)
    assert found.tests == (Test("1 2\n", "3\n"), Test("5 5\n", "10\n"))
    assert (found.solutions, found.incorrect_solutions) == (("a", "b"), ("c",))
    assert (found.time_limit_s, found.memory_limit_mb) == (1.5, 245)
    assert (found.source, found.tags, found.difficulty) == ("CODEFORCES", ("math",), "9")
    unknown = contests.code_contests(code_contests_row(time_limit=None, memory_limit_bytes=0), "p")
    assert (unknown.time_limit_s, unknown.memory_limit_mb, unknown.solutions) == (None, None, ())


def test_columns_of_code_contests_plus(monkeypatch):
    found = contests.codecontests_plus(made.codecontests_plus(4), "codecontests_plus/00000")
    assert found.name == "codecontests_plus/4_A" and found.source == "Codeforces"
    assert (found.time_limit_s, found.memory_limit_mb) == (2.0, 256)
    assert (found.solutions, found.incorrect_solutions) == ((ADD,), (SUBTRACT,))
    assert found.checker == "program" and len(found.tests) == found.generated_tests == 4
    assert found.checker_program == CheckerProgram("testlib", made.codecontests_plus()["checker"])
    monkeypatch.setattr(contests, "MAX_TEST_BYTES", 10)
    monkeypatch.setattr(contests, "MAX_LARGE_BYTES", 100)
    monkeypatch.setattr(contests, "MAX_PROGRAMS", 2)
    sizes = [3, 40, 200, 50, 5, 60, 9]
    row = made.codecontests_plus(
        test_cases=[{"input": "i" * (size - 1), "output": "o"} for size in sizes],
        correct_submissions=[{"code": code, "language": "PY3"} for code in "aabc"],
    )
    capped = contests.codecontests_plus(row, "p")
    assert [len(test.input) + 1 for test in capped.tests] == [3, 40, 50, 5, 9]
    assert capped.solutions == ("a", "b")


def test_columns_of_codeforces():
    found = contests.codeforces(made.codeforces(7, note="Mind the sign."), "codeforces/00003")
    assert found.name == "codeforces/7/A" and found.samples == (Test("1 2", "3"),)
    hidden = [(f"{a} {b}\n", f"{a + b}\n") for a, b in made.PAIRS[1:]]
    assert found.tests == (*found.samples, *(Test(*test) for test in hidden))
    assert found.statement.endswith(
        "Input\n\nTwo integers.\n\nOutput\n\nTheir sum.\n\nNote\n\nMind the sign."
    )
    assert (found.rating, found.date, found.tags) == (800, "2017-09-03", ("math",))
    assert (found.time_limit_s, found.memory_limit_mb, found.checker) == (1.0, 256, "tokens")
    checked = contests.codeforces(made.codeforces(generated_checker="print(1)"), "p")
    assert checked.checker_program == CheckerProgram("python", "print(1)")
    absent = dict.fromkeys(("rating", "contest_start", "time_limit", "memory_limit", "tags"))
    plain = contests.codeforces(made.codeforces(**absent), "p")
    assert (plain.rating, plain.date, plain.tags, plain.time_limit_s) == (None, "", (), None)
    # an official copy of a sample with another output proves several answers
    copies = [{"input": "1 2\r\n", "output": "4\r\n"}, {"input": "2 2", "output": "4"}]
    several = contests.codeforces(made.codeforces(official_tests=copies), "p")
    assert several.checker == "needs_checker"


def test_columns_of_livecodebench():
    found = contests.livecodebench(made.livecodebench(3), "livecodebench/00007")
    assert found.name == "livecodebench/abc3_a" and found.samples == (Test("1 2\n", "3\n"),)
    assert found.tests[0] == found.samples[0] and len(found.tests) == 4
    assert (found.date, found.difficulty, found.source) == ("2024-04-15", "easy", "atcoder")
    plain = json.dumps([test | {"testtype": "stdin"} for test in made.STDIN[1:]])
    same = contests.livecodebench(made.livecodebench(3, private=plain), found.name)
    assert same == found
    function = contests.livecodebench(made.livecodebench(function=True), "p")
    assert (function.fn_name, function.checker) == ("add", "call")
    assert function.tests[1] == Test("[5, 7]", "12") and function.starter_code == STARTER


def test_the_configurations_of_deepcoder_give_the_same_tests():
    rows = (made.deepcoder_taco(), made.deepcoder_primeintellect(), made.deepcoder_lcb())
    for row in rows:
        found = contests.deepcoder(row, "deepcoder/00001")
        assert found.tests[:2] == (Test("1 2\n", "3\n"), Test("5 7\n", "12\n"))
        assert (found.fn_name, found.checker, len(found.tests)) == (None, "tokens", 4)
        assert found.solutions in ((), (ADD,))
    lcb = made.deepcoder_lcb(function=True)
    as_text = lcb | {"tests": json.loads(lcb["tests"]), "metadata": '{"func_name": "add"}'}
    by_starter_code = lcb | {"metadata": None, "starter_code": STARTER}
    for row in (made.deepcoder_primeintellect(function=True), lcb, as_text, by_starter_code):
        found = contests.deepcoder(row, "deepcoder/00001")
        assert found.tests[:2] == (Test("[1, 2]", "3"), Test("[5, 7]", "12"))
        assert (found.fn_name, found.checker) == ("add", "call")
    fenced = contests.deepcoder(made.deepcoder_primeintellect(function=True), "p")
    assert fenced.solutions == (ADD_FUNCTION,)


class Reducer:
    """Pickles as a call of a function."""

    def __reduce__(self):
        return (print, ("this must not run",))


STDIN = {"input": "1", "output": "1"}
CALL = STDIN | {"testtype": "functional"}
CUT = base64.b64encode(zlib.compress(pickle.dumps("[]" * 900))[:-9]).decode()
SAMPLES_ONLY = "no tests but the statement's samples"


SKIPPED = {
    contests.taco: [
        ({"input_output": ""}, "input_output is empty"),
        ({"input_output": None}, "input_output is not an object"),
        ({"input_output": "{'inputs': []}"}, "input_output is not JSON"),
        ({"input_output": "[" * 100_000}, "input_output is not JSON"),
        (taco_row([], []), "no tests"),
        (taco_row(["1"], []), "inputs and outputs differ in number"),
        (taco_row({"a": 1}, ["1"]), "inputs and outputs are not lists"),
        (taco_row(["1", "2"], ["", "\n"]), "all expected outputs are empty"),
        (taco_row(["1"], ["1"], starter_code="# here"), "starter code without a function"),
        (taco_row(["not json"], ["1"], fn_name="f"), "an argument is not JSON"),
        (taco_row(["1"], ["1"], solutions="[broken"), "solutions is not JSON"),
    ],
    contests.code_contests: [
        (code_contests_row(input_file="in.txt"), "reads a file"),
        (code_contests_row(output_file="out.txt"), "writes a file"),
        ({"description": "Add."}, "no tests"),
        (
            code_contests_row(public_tests={"input": ["1"], "output": []}),
            "inputs and outputs differ in number",
        ),
    ],
    contests.codecontests_plus: [
        (made.codecontests_plus(test_cases=None), "no tests"),
        (
            made.codecontests_plus(test_cases=[{"input": "1" * 5_000_000, "output": "1"}]),
            "all tests are too large",
        ),
    ],
    contests.codeforces: [
        (made.codeforces(official_tests=[]), SAMPLES_ONLY),
        (made.codeforces(official_tests=[{"input": "1  2\r\n", "output": "3\r\n"}]), SAMPLES_ONLY),
        (made.codeforces(interaction_format="Query."), "interactive"),
        (made.codeforces(input_mode="file"), "reads input.txt and writes .*"),
        (made.codeforces(executable=False), "no program was ever run on .*"),
    ],
    contests.livecodebench: [
        (made.livecodebench(private="[]"), "no private tests"),
        (made.livecodebench(private='{"a": 1}'), "tests are not a list .*"),
        (made.livecodebench(private="%%%"), ".* neither JSON nor base64.*"),
        (made.livecodebench(private=CUT), "private_test_cases are cut off"),
        (made.livecodebench(private=made.packed([1])), ".* pickle of something else than text"),
        (
            made.livecodebench(private=made.packed(Reducer())),
            "private_test_cases ask for more than plain values",
        ),
        (made.livecodebench(public_test_cases="[{"), ".* is not JSON"),
        (made.livecodebench(function=True, metadata="{"), "metadata is not JSON"),
    ],
    contests.deepcoder: [
        (made.deepcoder_taco(problem=None), "problem is not a text"),
        (made.deepcoder_taco(tests=""), "tests is empty"),
        (made.deepcoder_taco(tests="[]"), "no tests"),
        (made.deepcoder_taco(tests='["1"]'), "tests are not a list of objects"),
        (
            made.deepcoder_taco(tests=[STDIN | {"output": None}]),
            "a test without an input or an output",
        ),
        (made.deepcoder_taco(tests=[STDIN, CALL]), "some tests call a function .*"),
        (made.deepcoder_taco(tests=[CALL]), ".* call a function without a name"),
        (
            made.deepcoder_taco(tests=[CALL | {"fn_name": "f"}, CALL | {"fn_name": "g"}]),
            "the tests call more than one function",
        ),
    ],
}


@pytest.mark.parametrize(
    ("convert", "row", "reason"), [(c, *case) for c, cases in SKIPPED.items() for case in cases]
)
def test_rows_that_cannot_be_judged_say_why(convert, row, reason):
    with pytest.raises(SkipRow, match=f"^{reason}$"):
        convert(row, "p")


PYTHON_CHECKER = checkers.python("print(int(sum(map(int, given)) == int(output[0])))").source
TESTLIB_CHECKER = checkers.testlib(
    """
    int sum = inf.readInt() + inf.readInt();
    if (ouf.readInt() != sum) quitf(_wa, "not %d", sum);
    quitf(_ok, "ok");
    """
).source
GOLD = {
    "deepcoder": [
        made.deepcoder_taco(0),
        made.deepcoder_primeintellect(1),
        made.deepcoder_primeintellect(2, function=True),
        made.deepcoder_lcb(3),
        made.deepcoder_lcb(4, function=True),
    ],
    "codeforces": [made.codeforces(5), made.codeforces(6, generated_checker=PYTHON_CHECKER)],
    "livecodebench": [made.livecodebench(7), made.livecodebench(8, function=True)],
    "codecontests_plus": [
        made.codecontests_plus(9, checker=None),
        *([made.codecontests_plus(11, checker=TESTLIB_CHECKER)] if shutil.which("g++") else []),
    ],
    "taco_verified": [made.taco_verified(10)],
}


def test_right_programs_are_accepted_and_near_misses_are_not(tmp_path):
    (tmp_path / "testlib.h").write_text(checkers.HEADER.read_text())
    expected, submissions = [], []
    for name, rows in GOLD.items():
        problems, skipped = load_problems(name, write(tmp_path / f"{name}.jsonl", rows))
        assert len(problems) == len(rows) and not skipped
        for problem in problems:
            if problem.checker == "needs_checker":
                comparing = comparing_checker(problem.statement, problem.tests)
                checker = "call" if problem.fn_name else comparing
                problem = replace(problem, checker=checker)
            right = (ADD_FUNCTION, made.ADD_METHOD) if problem.fn_name else (ADD,)
            wrong = ADD_FUNCTION.replace("+", "-") if problem.fn_name else SUBTRACT
            for program in (*right, *problem.solutions, wrong):
                submissions.append(Submission(problem, as_response(program)))
                expected.append(program != wrong)
    with open_sandbox(SandboxConfig(kind="embedded", workers=1)) as sandbox:
        judgements = Judge(sandbox, JudgeConfig(testlib=str(tmp_path))).judge(submissions)
    accepted = [judgement.verdict is Verdict.ACCEPTED for judgement in judgements]
    assert accepted == expected and len(expected) > 25
