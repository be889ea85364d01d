"""The nouns of this room: a problem, its tests, and what the judge says of a program."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cached_property

CHECKERS = ("tokens", "floats", "case_insensitive", "call", "needs_checker")


class Verdict(StrEnum):
    """The judge's word on one program. INFRA_ERROR is the judge's own failure, never a reward."""

    ACCEPTED = "ACCEPTED"
    WRONG_ANSWER = "WRONG_ANSWER"
    TIME_LIMIT = "TIME_LIMIT"
    MEMORY_LIMIT = "MEMORY_LIMIT"
    OUTPUT_LIMIT = "OUTPUT_LIMIT"
    RUNTIME_ERROR = "RUNTIME_ERROR"
    SYNTAX_ERROR = "SYNTAX_ERROR"  # also: no program in the response
    INFRA_ERROR = "INFRA_ERROR"


@dataclass(frozen=True, slots=True)
class Test:
    """One test. Call-based problems hold JSON here: the argument list, and the returned value."""

    __test__ = False  # the name is the field's; pytest would otherwise try to collect it

    input: str
    output: str


@dataclass(frozen=True)
class Problem:
    """A contest problem. `tests` is all that the judge runs; `samples` is what the prompt shows."""

    name: str  # unique within its task, e.g. "mini/test/0007"
    statement: str
    samples: tuple[Test, ...]
    tests: tuple[Test, ...]
    checker: str = "tokens"  # one of CHECKERS
    fn_name: str | None = None  # set: the program defines this function (or a method of Solution)
    starter_code: str = ""
    # so many of the last ones a data set made from others of its own; tells only how to cap them
    generated_tests: int = field(default=0, repr=False)
    time_limit_s: float | None = None  # None: the judge's default
    memory_limit_mb: int | None = None
    difficulty: str = ""
    tags: tuple[str, ...] = ()
    source: str = ""
    solutions: tuple[str, ...] = ()  # correct programs
    incorrect_solutions: tuple[str, ...] = ()

    @cached_property
    def hash(self) -> str:
        """16 hex digits over all that a verdict depends on."""
        digest = hashlib.sha256()
        judged = (self.checker, self.fn_name, self.time_limit_s, self.memory_limit_mb)
        digest.update(repr(judged).encode())
        for test in self.tests:
            digest.update(repr((test.input, test.output)).encode())
        return digest.hexdigest()[:16]


@dataclass(frozen=True, slots=True)
class Judgement:
    """What the judge found for one response to one problem."""

    verdict: Verdict
    passed: int  # tests passed among those run
    total: int  # tests of the problem, run or not
    run: int  # tests run: fewer than total where judging stopped at the first failure
    program: str  # as extracted from the response, "" where there was none
    cpu_s: float = 0.0
    detail: str = ""  # e.g. the tail of stderr, or the first difference
    problem_hash: str = ""
    judge_version: str = ""
