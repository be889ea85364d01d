"""Rows in the schemas of DeepCoder, open-r1's Codeforces, LiveCodeBench, CodeContests+ and
TACO-verified, made here: a program that adds two numbers, or a function that does."""

import base64
import json
import pickle
import zlib

from tests.envs.tasks.dataset_rows import statement

ADD = "a, b = map(int, input().split())\nprint(a + b)"
SUBTRACT = "a, b = map(int, input().split())\nprint(a - b)"
ADD_FUNCTION = "def add(a, b):\n    return a + b"
ADD_METHOD = "class Solution:\n    def add(self, a: int, b: int) -> int:\n        return a + b"
STARTER = "class Solution:\n    def add(self, a: int, b: int) -> int:\n        "
PAIRS = [(1, 2), (5, 7), (10, -4), (0, 0)]
STDIN = [{"input": f"{a} {b}\n", "output": f"{a + b}\n"} for a, b in PAIRS]
CALLS = [{"input": f"{a}\n{b}", "output": f"{a + b}"} for a, b in PAIRS]


def _of_kind(tests, key, kind):
    return [test | {key: kind} for test in tests]


def deepcoder_taco(number=0, **changed):
    tests = {key: [test[key[:-1]] for test in STDIN] for key in ("inputs", "outputs")}
    row = {"problem": statement(number), "tests": json.dumps(tests), "solutions": [ADD]}
    return row | changed


def deepcoder_primeintellect(number=0, function=False, **changed):
    tests = _of_kind(STDIN, "type", "stdin_stdout")
    program = ADD
    if function:
        tests = [
            {"type": "function_call", "fn_name": "add", "input": [a, b], "output": [a + b]}
            for a, b in PAIRS
        ]
        program = ADD_FUNCTION
    fenced = f"```python\n{program}\n```"
    row = {"problem": statement(number), "tests": json.dumps(tests), "solutions": [fenced]}
    return row | changed


def deepcoder_lcb(number=0, function=False, **changed):
    tests = _of_kind(STDIN, "testtype", "stdin")
    row = {"problem": statement(number), "tests": json.dumps(tests), "starter_code": ""}
    row |= {"metadata": {"func_name": None}}
    if function:
        row |= {"tests": json.dumps(_of_kind(CALLS, "testtype", "functional"))}
        row |= {"starter_code": STARTER, "metadata": {"func_name": "add"}}
    return row | changed


def codeforces(number=0, **changed):
    return {
        "id": f"{number}/A",
        "contest_start": 1504432800,  # 2017-09-03
        "time_limit": 1.0,
        "memory_limit": 256.0,
        "description": statement(number),
        "input_format": "Two integers.",
        "output_format": "Their sum.",
        "interaction_format": None,
        "note": None,
        "examples": [{"input": "1 2", "output": "3"}],
        "rating": 800,
        "tags": ["math"],
        "official_tests": [
            {key: text.replace("\n", "\r\n") for key, text in test.items()} for test in STDIN
        ],
        "official_tests_complete": True,
        "input_mode": "stdio",
        "generated_checker": None,
        "executable": True,
        "generated_tests": 0,
    } | changed


def packed(value):
    """As LiveCodeBench packs private tests."""
    return base64.b64encode(zlib.compress(pickle.dumps(value))).decode()


def livecodebench(number=0, function=False, private=None, **changed):
    tests, kind = (CALLS, "functional") if function else (STDIN, "stdin")
    tests = _of_kind(tests, "testtype", kind)
    return {
        "question_title": "Sum",
        "question_content": statement(number),
        "platform": "leetcode" if function else "atcoder",
        "question_id": f"abc{number}_a",
        "contest_id": f"abc{number}",
        "contest_date": f"2024-{1 + number % 12:02d}-15T00:00:00",
        "starter_code": STARTER if function else "",
        "difficulty": ("easy", "medium", "hard")[number % 3],
        "public_test_cases": json.dumps(tests[:1]),
        "private_test_cases": packed(json.dumps(tests[1:])) if private is None else private,
        "metadata": json.dumps({"func_name": "add"} if function else {}),
    } | changed


def codecontests_plus(number=0, **changed):
    return {
        "source": "Codeforces",
        "id": f"{number}_A",
        "title": "Sum",
        "description": statement(number),
        "time_limit": 2000,
        "memory_limit": 256,
        "validator": "int main() {}",
        "generator": "int main() {}",
        "generator_cmd": "./gen",
        "checker": '#include "testlib.h"\nint main() {}',
        "test_cases": STDIN,
        "correct_submissions": [
            {"code": "int main() {}", "language": "cpp"},
            {"code": ADD, "language": "py3"},
            {"code": "print 3", "language": "py2"},
        ],
        "incorrect_submissions": [{"code": SUBTRACT, "language": "py3"}],
        "true_positive_rate": 1.0,
        "true_negative_rate": 1.0,
    } | changed


def taco_verified(number=0, **changed):
    tests = {key: [test[key[:-1]] for test in STDIN] for key in ("inputs", "outputs")}
    return {
        "id": number,
        "question": statement(number),
        "input_output": json.dumps(tests),
        "solutions": [ADD],
        "starter_code": "",
        "difficulty": "EASY",
        "tags": "['Mathematics']",
        "source": "codeforces",
        "date": "2018-05-01",
        "time_limit": "2.0 seconds",
        "memory_limit": "256.0 megabytes",
    } | changed
