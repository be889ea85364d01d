"""The judge on a real sandbox: verdicts, order, cache, early stop, counters, second runs."""

import platform
import tracemalloc
from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from envs.judge.judge import Judge, JudgeConfig, Submission
from envs.problem import Problem, Test, Verdict
from envs.sandbox.base import Execution, Outcome

TESTS = tuple(Test(f"{n}\n", f"{n * n}\n") for n in (1, 2, 3, -4, 5, 6))
SQUARE = Problem("test/square", "Print n squared.", (), TESTS, time_limit_s=1.0)

RIGHT = "n = int(input())\nprint(n * n)"
WRONG_FROM_2 = "n = int(input())\nprint(n)"
WRONG_ON_NEGATIVE = "n = int(input())\nprint(n * abs(n))"

PROGRAMS = {
    RIGHT: Verdict.ACCEPTED,
    f"```python\n{RIGHT}\n```": Verdict.ACCEPTED,
    WRONG_FROM_2: Verdict.WRONG_ANSWER,
    WRONG_ON_NEGATIVE: Verdict.WRONG_ANSWER,
    f"{RIGHT}\nraise SystemExit(3)": Verdict.RUNTIME_ERROR,
    "print(1 / 0)": Verdict.RUNTIME_ERROR,
    "```python\nprint((\n```": Verdict.SYNTAX_ERROR,
    "I do not know.": Verdict.SYNTAX_ERROR,
    "while True: print('x' * 10**6)": Verdict.OUTPUT_LIMIT,
    "x = [0] * 10**9": Verdict.MEMORY_LIMIT,
}


def submissions(*responses, problem=SQUARE):
    return [Submission(problem, response) for response in responses]


def test_each_verdict_in_the_order_of_submission(recorder):
    judgements = Judge(recorder).judge(submissions(*PROGRAMS))
    assert [judgement.verdict for judgement in judgements] == list(PROGRAMS.values())
    for judgement in judgements:
        assert judgement.total == len(TESTS)
        assert judgement.problem_hash == SQUARE.hash
        assert (judgement.passed == judgement.total) == (judgement.verdict is Verdict.ACCEPTED)
        assert bool(judgement.detail) == (judgement.verdict is not Verdict.ACCEPTED)


def test_the_judgement_says_where_and_why(recorder):
    (judgement,) = Judge(recorder).judge(submissions(WRONG_FROM_2))
    assert judgement.detail == "test 1: token 1: expected '4', found '2'"
    assert judgement.program == WRONG_FROM_2
    assert (judgement.failed_test, judgement.output) == (1, "2\n")
    (judgement,) = Judge(recorder).judge(submissions("print(1 / 0)"))
    assert "ZeroDivisionError" in judgement.detail
    assert (judgement.failed_test, judgement.output) == (0, "")
    assert judgement.exception == "line 1: ZeroDivisionError: division by zero"


def test_early_stop_ends_at_the_first_failure_and_full_judging_does_not(recorder):
    (early,) = Judge(recorder).judge(submissions(WRONG_ON_NEGATIVE))
    assert (early.passed, early.run, early.total) == (3, 4, 6)
    (full,) = Judge(recorder, JudgeConfig(early_stop=False)).judge(submissions(WRONG_ON_NEGATIVE))
    assert (full.passed, full.run, full.total) == (5, 6, 6)
    assert early.verdict is full.verdict is Verdict.WRONG_ANSWER


def test_tests_that_failed_run_first_from_the_next_call_on(recorder):
    judge = Judge(recorder)
    first = judge.judge(submissions(WRONG_ON_NEGATIVE, WRONG_ON_NEGATIVE + "\n"))
    assert [judgement.run for judgement in first] == [4, 4]
    (later,) = judge.judge(submissions(WRONG_ON_NEGATIVE + "\n\n"))
    assert (later.passed, later.run) == (0, 1)
    assert later.detail.startswith("test 3: ")
    (right,) = judge.judge(submissions(RIGHT))
    assert right.verdict is Verdict.ACCEPTED


@pytest.mark.parametrize("early_stop", [True, False])
def test_an_output_goes_when_it_is_graded(real_sandbox, early_stop):
    problem = replace(SQUARE, tests=tuple(Test(f"{n}", f"{n}") for n in range(25)))
    padded = "n = int(input())\nprint(' ' * 4_000_000, n, end='')"
    judge = Judge(real_sandbox, JudgeConfig(early_stop=early_stop))
    tracemalloc.start()
    try:
        (judgement,) = judge.judge(submissions(padded, problem=problem))
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert judgement.verdict is Verdict.ACCEPTED
    assert peak < 10 * 4_000_000


def test_tests_in_order_stay_in_order_whatever_failed(recorder):
    judge, ordered = Judge(recorder), replace(SQUARE, in_order=True)
    judge.judge(submissions(WRONG_ON_NEGATIVE, problem=ordered))
    (later,) = judge.judge(submissions(WRONG_FROM_2, problem=ordered))
    assert later.failed_test == 1
    assert ordered.hash != SQUARE.hash


def test_equal_programs_are_judged_once(recorder):
    judge = Judge(recorder)
    first = judge.judge(submissions(RIGHT, WRONG_FROM_2, f"```python\n{RIGHT}\n```", RIGHT))
    again = judge.judge(submissions(WRONG_FROM_2, RIGHT))
    assert recorder.batches == [[RIGHT, WRONG_FROM_2]]
    assert first[0] == first[2] == first[3] == again[1]
    assert first[1] == again[0]
    assert (judge.stats.programs_judged, judge.stats.programs_cached) == (2, 4)
    assert judge.stats.tests_run == 6 + 2
    assert judge.stats.submissions == 6
    assert judge.stats.cpu_s > 0


@pytest.mark.parametrize(("second_cpu_s", "verdict"), [(0.9, "ACCEPTED"), (1.1, "TIME_LIMIT")])
def test_a_right_answer_just_over_the_limit_runs_again_alone(recorder, second_cpu_s, verdict):
    def replaced(batch, job, execution):
        slow = job.program == RIGHT
        return replace(execution, cpu_s=[1.1, second_cpu_s][batch]) if slow else execution

    recorder.replace = replaced
    judge = Judge(recorder, JudgeConfig(time_factor=1.0, early_stop=False))
    slow, wrong = judge.judge(submissions(RIGHT, WRONG_FROM_2))
    assert slow.verdict == verdict
    assert wrong.verdict is Verdict.WRONG_ANSWER
    assert recorder.batches == [[RIGHT, WRONG_FROM_2], [RIGHT]]
    assert judge.stats.judged_again == 1


LOST, STARVED = Execution(Outcome.INFRA_ERROR, stderr="lost"), Execution(Outcome.STARVED)
KILLED = Execution(Outcome.RUNTIME_ERROR, killed=True)
NO_VERDICTS = [([LOST], "ACCEPTED"), ([LOST] * 2, "INFRA_ERROR"), ([STARVED] * 2, "INFRA_ERROR")]
NO_VERDICTS += [([KILLED], "ACCEPTED"), ([KILLED] * 2, "RUNTIME_ERROR")]
NO_VERDICTS += [([LOST, KILLED], "ACCEPTED"), ([STARVED], "ACCEPTED")]


@pytest.mark.parametrize(("ends", "verdict"), NO_VERDICTS)
def test_what_is_no_verdict_runs_again_and_is_not_remembered(recorder, ends, verdict):
    recorder.replace = lambda batch, _, real: replace(ends[batch]) if batch < len(ends) else real
    judge = Judge(recorder)
    (judgement,) = judge.judge(submissions(RIGHT))
    again = judge.stats.judged_again
    assert (judgement.verdict, again + (verdict != "ACCEPTED")) == (verdict, len(ends))
    assert ("no core was free" in judgement.detail) == (ends == [STARVED] * 2)
    assert judge.stats.infra_errors == (verdict == "INFRA_ERROR")
    assert judge.judge(submissions(RIGHT))[0].verdict is Verdict.ACCEPTED
    assert len(recorder.batches) == 1 + len(ends)


def test_calls(recorder):
    problem = replace(
        SQUARE,
        checker="call",
        fn_name="twice",
        tests=(Test('[[1, "a"]]', '[1, "a", 1, "a"]'), Test("[[]]", "[]")),
    )
    plain = "def twice(x):\n    print('noise')\n    return x + x"
    method = "class Solution:\n    def twice(self, x):\n        return tuple(x * 2)"
    wrong = "def twice(x):\n    return x"
    judgements = Judge(recorder).judge(submissions(plain, method, wrong, problem=problem))
    verdicts = [judgement.verdict for judgement in judgements]
    assert verdicts == [Verdict.ACCEPTED, Verdict.ACCEPTED, Verdict.WRONG_ANSWER]


ASSERTED = (
    Test("[[3, 1]]", "result == [1, 3]"),
    Test("[[]]", "not result"),
    Test('[{"": ["tuple", [2]]}]', "result == [2]"),
)
FORGED = yaml.safe_load(Path(__file__).with_name("data").joinpath("forged.yaml").read_text())


def test_asserts_of_a_data_set_hold_for_what_was_returned_and_not_for_what_claims_to_be(recorder):
    problem = replace(SQUARE, checker="assert", fn_name="f", tests=ASSERTED)
    right = ["def f(x): return sorted(x)", "class Solution:\n def f(self, x): return sorted(x)"]
    right.append("class L(list): pass\ndef f(x): return L(sorted(x))")
    judgements = Judge(recorder).judge(submissions(*right, *FORGED.values(), problem=problem))
    accepted = [judgement.verdict is Verdict.ACCEPTED for judgement in judgements]
    assert accepted == [True] * len(right) + [False] * len(FORGED)
    assert not any(judgement.verdict is Verdict.INFRA_ERROR for judgement in judgements)


@pytest.mark.parametrize(
    "change",
    [
        {"tests": ()},
        {"checker": "needs_checker"},
        {"checker": "call", "fn_name": "f", "tests": (Test("[1]", "1"), Test("[2]", "None"))},
        {"checker": "assert", "fn_name": "f", "tests": (Test("[1]", "result == f(1)"),)},
    ],
)
def test_a_problem_that_cannot_be_judged_is_an_error(recorder, change):
    with pytest.raises(ValueError, match="test/square cannot be judged"):
        Judge(recorder).judge(submissions(RIGHT, problem=replace(SQUARE, **change)))


def test_the_version_changes_with_the_rules_in_force(recorder):
    one, same = Judge(recorder), Judge(recorder, JudgeConfig())
    other = Judge(recorder, JudgeConfig(time_factor=3.0))
    assert one.version == same.version != other.version
    assert one.judge(submissions(RIGHT))[0].judge_version == one.version


def test_the_version_changes_with_what_programs_run_on(recorder, real_sandbox):
    before = Judge(recorder).version
    recorder.platform = real_sandbox.platform
    after = Judge(recorder).version
    assert before != after == Judge(real_sandbox).version
    assert f"embedded, python {platform.python_version()}, numpy " in real_sandbox.platform
