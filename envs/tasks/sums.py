"""Sums of two numbers: the smallest task without programs, for trying the training loop.

An example to copy for other kinds of answers: the problems, and the environment that judges them.
"""

from __future__ import annotations

import itertools
import random
import re
from collections.abc import Sequence
from typing import Any

from envs.caching import code_digest
from envs.problem import Judgement, JudgeStats, Problem, Submission, Test, Verdict
from envs.tasks.task import SPLITS, Task, TaskConfig, data_hash

LEVELS = {"easy": 5, "medium": 10, "hard": 50}  # difficulty → bound on both numbers
_INTEGER = re.compile(r"-?[0-9]+")
_SHARES = {"train": 0.6, "tune": 0.1, "choose": 0.15, "test": 0.15}


def make(config: TaskConfig) -> Task:
    """Build the task of conf/task/sums.yaml."""
    splits: dict[str, Any] = {
        split: load(split, getattr(config, f"{split}_problems")) for split in SPLITS
    }
    return Task(**splits, prompt=prompt, response=str, data_hash=data_hash(splits, prompt))


def load(split: str, size: int) -> list[Problem]:
    """Return `size` problems of a split (or all), easy ones first. No two splits share a sum."""
    problems: list[Problem] = []
    place, easier = list(_SHARES).index(split), 0
    for level, limit in LEVELS.items():
        pairs = [p for p in itertools.product(range(limit), repeat=2) if max(p) >= easier]
        random.Random(f"sums/{level}").shuffle(pairs)
        ends = [0, *(round(len(pairs) * share) for share in itertools.accumulate(_SHARES.values()))]
        for a, b in pairs[ends[place] : ends[place + 1]]:
            right, wrong = str(a + b), (str(a + b + 1), str(a + b - 1), str(abs(a - b)))
            problem = Problem(
                name=f"sums/{split}/{len(problems):04d}",
                statement=f"What is {a} + {b}?",
                samples=(),
                tests=(Test("", right),),
                difficulty=level,
                solutions=(right,),
                incorrect_solutions=tuple(text for text in wrong if text != right),
            )
            problems.append(problem)
        easier = limit
    return problems[:size]


def prompt(problem: Problem) -> str:
    """Return the user message."""
    return problem.statement


class FirstInteger:
    """Accepts a response whose first integer is the problem's one expected output."""

    def __init__(self) -> None:
        self.version = f"first-integer-{code_digest(__name__)}"
        self.stats = JudgeStats()

    def judge(self, submissions: Sequence[Submission]) -> list[Judgement]:
        """Judge all, in order. A response without an integer gets SYNTAX_ERROR.

        Raises ValueError for a problem that does not have exactly one test.
        """
        return [self._judge(submission) for submission in submissions]

    def _judge(self, submission: Submission) -> Judgement:
        problem = submission.problem
        if len(problem.tests) != 1:
            raise ValueError(f"problem {problem.name}: one test holds the answer, not more or none")
        answer = _INTEGER.search(submission.response)
        right = answer is not None and _canonical(answer[0]) == _canonical(
            problem.tests[0].output.strip()
        )
        verdict = Verdict.ACCEPTED if right else Verdict.WRONG_ANSWER
        self.stats.submissions += 1
        self.stats.without_program += answer is None
        self.stats.programs_judged += answer is not None
        self.stats.tests_run += answer is not None
        return Judgement(
            verdict=verdict if answer else Verdict.SYNTAX_ERROR,
            passed=int(right),
            total=1,
            run=int(answer is not None),
            program=answer[0] if answer else "",
            detail="" if answer else "no integer in the response",
            problem_hash=problem.hash,
            judge_version=self.version,
        )


def _canonical(integer: str) -> str:
    """Strip leading zeros; as text, since int() refuses more than 4,300 digits."""
    digits = integer.lstrip("-").lstrip("0") or "0"
    return f"-{digits}" if integer.startswith("-") and digits != "0" else digits
