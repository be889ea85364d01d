"""Checkers in Python and in C++ for the same problems (`data/checkers.yaml`).

`data/testlib.h` is a stand-in for the real header, which is no part of this project;
`test_testlib.py` takes the real one where it is installed.
"""

from dataclasses import dataclass
from pathlib import Path

import yaml

from envs.problem import CheckerProgram, Problem, Test

DATA = Path(__file__).parent / "data"
HEADER = DATA / "testlib.h"


@dataclass(frozen=True)
class Case:
    """A problem, checkers for it in both languages, and outputs that one or none accepts."""

    python: CheckerProgram
    testlib: CheckerProgram
    right: str  # a program whose answers are others than the expected ones
    wrong: tuple[str, ...]  # programs


CASES = {
    name: Case(
        CheckerProgram("python", case["python"]),
        CheckerProgram("testlib", case["testlib"]),
        case["right"],
        tuple(case["wrong"]),
    )
    for name, case in yaml.safe_load((DATA / "checkers.yaml").read_text()).items()
}
SPLIT = CASES["split"]  # print two positive integers whose sum is n
SPLIT_TESTS = tuple(Test(f"{n}\n", f"1 {n - 1}\n") for n in (5, 9, 100, 12345))
# Rows of taco_special_judge: permutations without a fixed point, one of the trees that fire reaches
# last, colours of pebbles in piles that differ by at most one.
SPECIAL_ROWS = {row: CASES[f"row {row}"] for row in (40, 57, 6)}


def python(body: str) -> CheckerProgram:
    """A checker with the words of the input, the expected output and the output at hand."""
    opening = (
        "import sys\ngiven, expected, output = (open(p).read().split() for p in sys.argv[1:])\n"
    )
    return CheckerProgram("python", opening + body)


def testlib(body: str) -> CheckerProgram:
    """The body of a checker's main function."""
    return CheckerProgram(
        "testlib",
        '#include "testlib.h"\n#include <unistd.h>\n#include <vector>\n'
        f"int main(int argc, char **argv) {{ registerTestlibCmd(argc, argv);\n{body}\n}}\n",
    )


testlib.__test__ = False  # keeps pytest from collecting it


def split_problem(program: CheckerProgram | None, **fields: object) -> Problem:
    """The problem of SPLIT with some checker program."""
    tests = fields.pop("tests", SPLIT_TESTS)
    fields = {"time_limit_s": 2.0, "checker": "program", "checker_program": program} | fields
    return Problem("test/split", "Print two numbers whose sum is n.", (), tests, **fields)
