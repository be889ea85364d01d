"""Rows in the schemas of DeepCoder, open-r1's Codeforces, LiveCodeBench, CodeContests+ and
TACO-verified, made here: a program that adds two numbers, or a function that does."""

import base64
import json
import pickle
import zlib
from pathlib import Path

import yaml

from tests.envs.tasks.dataset_rows import statement

ADD = "a, b = map(int, input().split())\nprint(a + b)"
SUBTRACT = "a, b = map(int, input().split())\nprint(a - b)"
ADD_FUNCTION = "def add(a, b):\n    return a + b"
ADD_METHOD = "class Solution:\n    def add(self, a: int, b: int) -> int:\n        return a + b"
STARTER = "class Solution:\n    def add(self, a: int, b: int) -> int:\n        "
ROWS = yaml.safe_load((Path(__file__).parent / "data" / "rows.yaml").read_text("utf-8"))
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
    tests = [{key: text.replace("\n", "\r\n") for key, text in test.items()} for test in STDIN]
    own = {"id": f"{number}/A", "description": statement(number), "official_tests": tests}
    return ROWS["codeforces"] | own | changed


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
    right = [("int main() {}", "cpp"), (ADD, "py3"), ("print 3", "py2")]
    own = {
        "id": f"{number}_A",
        "description": statement(number),
        "test_cases": STDIN,
        "correct_submissions": [{"code": code, "language": name} for code, name in right],
        "incorrect_submissions": [{"code": SUBTRACT, "language": "py3"}],
    }
    return ROWS["codecontests_plus"] | own | changed


def taco_verified(number=0, **changed):
    tests = {key: [test[key[:-1]] for test in STDIN] for key in ("inputs", "outputs")}
    own = {"question": statement(number), "input_output": json.dumps(tests), "solutions": [ADD]}
    return ROWS["taco_verified"] | {"id": number} | own | changed
