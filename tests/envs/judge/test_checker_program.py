"""Checker programs: what a run says, verdicts on every sandbox, faults, what each side can find."""

import errno
import json
import logging
import os
import shutil
import time
from dataclasses import replace

import pytest
import yaml

from envs.judge.checker_program import checker_input, decide, is_no_number
from envs.judge.judge import Judge, JudgeConfig
from envs.judge.testlib import Toolchain, find_toolchain
from envs.judge.verdict_cache import VerdictCache
from envs.problem import CheckerProgram, Problem, Submission, Test, Verdict
from envs.sandbox.base import Execution, Outcome
from tests.envs.judge.checkers import DATA as FOLDER
from tests.envs.judge.checkers import (
    HEADER,
    SPECIAL_ROWS,
    SPLIT,
    SPLIT_TESTS,
    python,
    split_problem,
    testlib,
)
from tests.envs.programs import tool
from tests.envs.sandboxes import EVERY_SANDBOX, open_one
from tests.envs.tasks.dataset_rows import DATA, needs_data

needs_compiler = pytest.mark.skipif(not shutil.which("g++"), reason="needs g++")
FAULTS = yaml.safe_load((FOLDER / "faults.yaml").read_text())
PRINTS_EXPECTED = "print(1, int(input()) - 1)"


@pytest.fixture(scope="module", params=EVERY_SANDBOX)
def sandbox(request):
    with open_one(request.param) as opened:
        yield opened


@pytest.fixture
def config():
    header = os.environ.get("SPO_BENCH_TESTLIB") or str(HEADER)
    return JudgeConfig(testlib=header, checker_time_limit_s=2.0)


def verdicts(judge: Judge, problem: Problem, *programs: str) -> list[Verdict]:
    return [one.verdict for one in judge.judge([Submission(problem, text) for text in programs])]


# ---- verdicts ----


@pytest.mark.parametrize("language", ["python", pytest.param("testlib", marks=needs_compiler)])
def test_a_checker_decides_on_every_sandbox(sandbox, config, language):
    problem = split_problem(getattr(SPLIT, language))
    found = verdicts(Judge(sandbox, config), problem, SPLIT.right, PRINTS_EXPECTED, *SPLIT.wrong)
    assert found == [Verdict.ACCEPTED] * 2 + [Verdict.WRONG_ANSWER] * len(SPLIT.wrong)


@pytest.mark.parametrize(
    "language", ["python", pytest.param("testlib", marks=[needs_compiler, pytest.mark.slow])]
)
@needs_data
@pytest.mark.parametrize("row", SPECIAL_ROWS)
# slow in C++: each compiles a checker
def test_special_rows_with_checkers_of_their_own(sandbox, config, row, language):
    rows = (DATA / "taco_special_judge.jsonl").read_text().splitlines()
    content = json.loads(rows[row])
    pairs = json.loads(content["input_output"])
    tests = tuple(map(Test, pairs["inputs"], pairs["outputs"]))
    case = SPECIAL_ROWS[row]
    checker = getattr(case, language)
    problem = Problem(f"row/{row}", content["question"], (), tests, "program", None)
    problem = replace(problem, checker_program=checker)
    own = json.loads(content["solutions"])[:1]
    judge = Judge(sandbox, config)
    found = verdicts(judge, problem, case.right, *own, *case.wrong)
    assert found == [Verdict.ACCEPTED] * 2 + [Verdict.WRONG_ANSWER] * len(case.wrong)
    compared = replace(problem, checker="tokens", checker_program=None)
    assert verdicts(judge, compared, case.right) == [Verdict.WRONG_ANSWER]


@pytest.mark.parametrize("early_stop", [True, False])
def test_counts_are_those_of_tests_in_order(real_sandbox, config, early_stop):
    right_but_on_100 = "n = int(input())\nprint(n - 2, 2 + (n == 100))"
    fails_on_9 = "n = int(input())\nprint(n - 2, 2)\nassert n != 9"
    judge = Judge(real_sandbox, replace(config, early_stop=early_stop))
    submissions = [
        Submission(split_problem(SPLIT.python), text) for text in (right_but_on_100, fails_on_9)
    ]
    wrong, fails = judge.judge(submissions)
    assert (wrong.passed, wrong.run, wrong.verdict) == (
        (2, 3, Verdict.WRONG_ANSWER) if early_stop else (3, 4, Verdict.WRONG_ANSWER)
    )
    assert wrong.detail == "test 2: the checker rejects it"
    assert (fails.passed, fails.run, fails.verdict) == (
        (1, 2, Verdict.RUNTIME_ERROR) if early_stop else (3, 4, Verdict.RUNTIME_ERROR)
    )


def test_programs_that_wait_for_one_decision_share_a_start(real_sandbox, config, monkeypatch):
    monkeypatch.setattr("envs.judge.checker_program.PROGRAMS_A_START", 3)
    judge = Judge(real_sandbox, config)
    started = []
    job = judge.checkers._job
    monkeypatch.setattr(judge.checkers, "_job", lambda *a: (started.append(len(a[1])), job(*a))[1])
    other = split_problem(replace(SPLIT.python, source=SPLIT.python.source + "\n"))
    programs = [f"n = int(input())\nprint(n - {i}, {i})" for i in (2, 3)]
    programs += ["print('two')", "print(9, 1)", "print(8, 1)"]
    submissions = [Submission(split_problem(SPLIT.python), text) for text in programs]
    submissions += [Submission(other, text) for text in programs[::-1]]
    found = [one.verdict for one in judge.judge(submissions)]
    right = [Verdict.ACCEPTED] * 2
    assert found == [*right, *[Verdict.WRONG_ANSWER] * 6, *right]
    # first outputs; the expected ones of both problems, after 'two'; the right programs' others
    assert started == [3, 2, 3, 2, 1, 1, 3, 3, 3, 3]


def test_verdicts_by_checkers_are_remembered_on_disk(real_sandbox, config, tmp_path):
    file = tmp_path / "verdicts.sqlite"
    programs = [SPLIT.right, *SPLIT.wrong]
    problem = split_problem(SPLIT.python)
    before = verdicts(Judge(real_sandbox, config, VerdictCache(file)), problem, *programs)
    judge = Judge(real_sandbox, config, VerdictCache(file))
    assert verdicts(judge, problem, *programs) == before
    assert judge.stats.programs_recalled == len(programs)
    other = split_problem(replace(SPLIT.python, source=SPLIT.python.source + "\n"))
    assert verdicts(judge, other, SPLIT.right) == [Verdict.ACCEPTED]
    assert judge.stats.programs_recalled == len(programs)


# ---- faults ----

PYTHON_FAULTS = FAULTS["python checkers"]
TESTLIB_FAULTS = FAULTS["testlib checkers"]


def one_test(checker: CheckerProgram) -> Problem:
    return split_problem(checker, tests=SPLIT_TESTS[:1])


@pytest.mark.parametrize("fault", PYTHON_FAULTS)
def test_a_fault_of_a_python_checker_is_no_verdict(real_sandbox, config, fault):
    judge = Judge(real_sandbox, replace(config, checker_time_limit_s=0.3))
    problem = one_test(python(PYTHON_FAULTS[fault]))
    if fault == "is no program":
        problem = one_test(CheckerProgram("python", PYTHON_FAULTS[fault]))
    assert verdicts(judge, problem, SPLIT.right) == [Verdict.INFRA_ERROR]
    assert (judge.stats.infra_errors, judge.stats.checker_faults) == (1, 1)


@needs_compiler
@pytest.mark.parametrize("early_stop", [True, False])
def test_a_checker_that_does_not_compile_is_a_fault(real_sandbox, config, early_stop):
    judge = Judge(real_sandbox, replace(config, early_stop=early_stop))
    submissions = [Submission(split_problem(testlib("nonsense")), SPLIT.right)] * 2
    for judged in judge.judge(submissions):
        assert judged.verdict is Verdict.INFRA_ERROR
        assert judged.detail.startswith("the checker does not compile: checker.cpp:")
    assert judge.stats.checker_faults == 1


@needs_compiler
def test_on_a_full_disk_a_new_checker_is_no_verdict_and_no_fault(real_sandbox, config, monkeypatch):
    def full(toolchain, source):
        raise OSError(errno.ENOSPC, "No space left on device")

    judge, source = Judge(real_sandbox, config), SPLIT.testlib.source
    executable = find_toolchain(config.testlib).compile(source)
    problem = one_test(replace(SPLIT.testlib, source=f"// {time.time()}\n{source}"))
    monkeypatch.setattr(Toolchain, "_compile", full)
    [judged] = judge.judge([Submission(problem, SPLIT.right)])
    assert judged.verdict is Verdict.INFRA_ERROR and "No space left" in judged.detail
    assert judge.stats.checker_faults == 0
    monkeypatch.setattr(Toolchain, "_compile", lambda *_: executable)
    assert verdicts(judge, problem, SPLIT.right) == [Verdict.ACCEPTED]


@needs_compiler
@pytest.mark.slow  # each compiles a checker
@pytest.mark.parametrize("fault", TESTLIB_FAULTS)
def test_a_fault_of_a_testlib_checker_is_no_verdict(sandbox, config, fault):
    judge = Judge(sandbox, replace(config, checker_time_limit_s=0.3))
    problem = one_test(testlib(TESTLIB_FAULTS[fault]))
    assert verdicts(judge, problem, SPLIT.right) == [Verdict.INFRA_ERROR]
    assert (judge.stats.infra_errors, judge.stats.checker_faults) == (1, 1)
    assert verdicts(judge, one_test(SPLIT.python), SPLIT.right) == [Verdict.ACCEPTED]


def test_an_exception_is_the_outputs_fault_if_the_checker_reads_the_expected_one(
    real_sandbox, config
):
    judge = Judge(real_sandbox, config)
    reads_numbers = one_test(python("print(int(sum(map(int, output)) == int(given[0])))"))
    assert verdicts(judge, reads_numbers, "print('2 and 3')") == [Verdict.WRONG_ANSWER]
    assert judge.stats.checker_faults == 0


# With any of these a program that solves nothing would have no verdict, and after five of them the
# problem would be left out.
HOSTILE_OUTPUTS = FAULTS["checkers that fail at some outputs"]


@pytest.mark.parametrize("harm", HOSTILE_OUTPUTS)
def test_an_output_that_keeps_a_checker_from_deciding_is_wrong(real_sandbox, config, harm):
    limits = {"checker_time_limit_s": 0.3, "early_stop": False, "max_checker_faults": 1}
    judge = Judge(real_sandbox, replace(config, **limits))
    problem = split_problem(python(HOSTILE_OUTPUTS[harm]))
    hostile, right = judge.judge([Submission(problem, f"print({i}, 3)") for i in (3, 1)])
    assert hostile.verdict is Verdict.WRONG_ANSWER and hostile.passed == 0
    # A checker that exceeds a limit once does not have to do so on every test.
    assert hostile.run == (4 if harm in ("a signal", "its end") else 1)
    if harm != "without end":  # on a busy machine its wall limit may come first
        assert hostile.by_wall_time == (harm == "sleeps")
    assert right.verdict is Verdict.ACCEPTED
    assert judge.stats.checker_faults == 0


def test_a_checker_that_is_slow_with_the_expected_output_too_is_at_fault(real_sandbox, config):
    judge = Judge(real_sandbox, replace(config, checker_time_limit_s=0.5))
    slow = "import time\nwhile time.process_time() < (0.4, 9)[int(output[0]) > 1]: pass\nprint(1)"
    problem = one_test(python(slow))
    assert verdicts(judge, problem, "print(3, 2)") == [Verdict.INFRA_ERROR]


def test_a_nan_is_no_number_to_any_checker(real_sandbox, config):
    compares = python("print(int(not abs(float(output[0]) - float(expected[0])) > 1e-6))")
    problem = split_problem(compares, tests=(Test("5\n", "2.5"),))
    programs = ["print(2.5000001)", "print('nan')", "print(2.6)"]
    found = verdicts(Judge(real_sandbox, config), problem, *programs)
    assert found == [Verdict.ACCEPTED, Verdict.WRONG_ANSWER, Verdict.WRONG_ANSWER]


def test_an_output_without_end_reaches_no_checker(real_sandbox, config):
    problem, programs = one_test(python("print(1)")), [f"print('7' * {n})" for n in (2**17, 2**19)]
    found = verdicts(Judge(real_sandbox, config), problem, *programs)
    assert found == [Verdict.ACCEPTED, Verdict.WRONG_ANSWER]


def test_a_problem_is_left_out_after_so_many_faults(real_sandbox, config, caplog):
    judge = Judge(real_sandbox, replace(config, max_checker_faults=2))
    problem = one_test(python("import ctypes\nif output[0] != '4': ctypes.string_at(0)\nprint(1)"))
    programs = [f"print(3, {i})" for i in range(3)]
    with caplog.at_level(logging.WARNING, "envs.judge"):
        assert verdicts(judge, problem, programs[0], "print(4, 1)") == ["INFRA_ERROR", "ACCEPTED"]
        assert not caplog.messages
        verdicts(judge, problem, programs[1])
    [message] = caplog.messages
    assert message.startswith("problem test/split is left out from now on: its checker failed on 2")
    faults = judge.stats.checker_faults
    later = judge.judge([Submission(problem, "print(4, 1, 1)")])[0]
    assert (later.verdict, later.detail) == (
        Verdict.INFRA_ERROR,
        "left out: its checker failed on 2 programs",
    )
    assert judge.stats.checker_faults == faults == 2
    resumed = Judge(real_sandbox, replace(config, max_checker_faults=2))
    resumed.load_state_dict(judge.state_dict())
    assert verdicts(resumed, problem, "print(4, 1, 1)") == [Verdict.INFRA_ERROR]


# ---- what each side can find ----

SECRET = "SECRET-0123456789abcdef"
# Looks for a text in all memory that the process can read, in files and in its own streams.
HUNT = tool("hunt.py")


def test_a_program_finds_neither_its_checker_nor_the_expected_output(sandbox, config):
    """The worker has run the checker before, on the same test."""
    checker = python(f"# {SECRET} in the source\nprint(1)")
    tests = tuple(Test(f"{n}\n", f"{SECRET} expected {n}\n") for n in range(3))
    problem = split_problem(checker, tests=tests)
    program = f"{HUNT}\nfound = hunt()\nassert not found, found\nprint(1)"
    judge = Judge(sandbox, config)
    assert verdicts(judge, problem, "print(1)") == [Verdict.ACCEPTED]
    (judged,) = judge.judge([Submission(problem, program)])
    assert judged.verdict is Verdict.ACCEPTED, judged.detail
    # It does find what its process has.
    with_secret = split_problem(checker, tests=(Test(f"{SECRET}\n", "2\n"),))
    (judged,) = judge.judge([Submission(with_secret, f"given = input()\n{program}")])
    assert judged.verdict is Verdict.RUNTIME_ERROR and "'given'" in judged.detail, judged


def test_a_checker_finds_nothing_of_the_program_but_its_output(sandbox, config):
    problem = one_test(python(f"{HUNT}\nfound = hunt()\nprint(found or 1)"))
    keeps = f"secret = [{SECRET!r} + str(n) for n in range(10_000)]\nprint(3, 2)"
    judge = Judge(sandbox, config)
    (judged,) = judge.judge([Submission(problem, keeps)])
    assert judged.verdict is Verdict.ACCEPTED, judged.detail


def test_a_checker_has_no_more_rights_than_a_program(sandbox, config):
    """It starts no process and no network, and writes no file beside its own folder."""
    source = """
import os, socket
def refused(action, *arguments):
    try:
        action(*arguments)
    except OSError:
        return True
right = refused(os.fork) and refused(os.execv, "/bin/sh", ["sh"]) and refused(socket.socket)
right = right and refused(open, sys.argv[3], "w") and refused(open, "/etc/passwd")
print(int(right and refused(open, "/new", "x") and refused(open, os.__file__, "a")))
"""
    assert verdicts(Judge(sandbox, config), one_test(python(source)), SPLIT.right) == ["ACCEPTED"]


# ---- one run of a checker ----


@pytest.mark.parametrize("run", FAULTS["decisions"], ids=str)
def test_decisions(run):
    language, outcome, status, stdout, finding = run
    execution = Execution(Outcome(outcome), stdout.encode(), "the reason", status)
    assert decide(language, execution).finding.value == finding


def test_arguments_are_in_the_order_of_each_kind():
    test = Test("in", "right")
    assert checker_input("python", test, b"out\n") == b"2 5 4\ninrightout\n"
    assert checker_input("testlib", test, b"out\n") == b"2 4 5\ninout\nright"


# (output, expected output) -> whether it has a NaN or an infinity for a number
NO_NUMBERS = {
    (b"nan", "2.5"): True,
    (b"1.0 -NaN\n", "3 0.5"): True,
    (b"+Infinity", "YES 0.5"): True,
    (b"1e999", "7"): True,
    ("\uff11e999".encode(), "7"): True,
    (b"9" * 400, "2.5"): True,
    (b"-" + b"9" * 400, "12"): False,  # a checker may read it as an integer
    (b"9" * 400, "7" * 400 + ".5"): False,
    (b"inf", "inf"): False,
    (b"nan", "nan 0.5"): False,
    (b"nan", "palindrome 3"): False,
    (b"nan", ""): False,
    (b"one 1e5 \xff", "2.5"): False,
}


@pytest.mark.parametrize("case", NO_NUMBERS, ids=lambda case: str(case)[:40])
def test_a_nan_is_no_number(case):
    assert is_no_number(*case) is NO_NUMBERS[case]
