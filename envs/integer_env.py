"""An environment without programs: the answer is an integer, and no sandbox is opened.

Used by conf/task/sums.yaml, and an example to copy for other kinds of answers.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from envs.environment import JudgeStats, Submission
from envs.import_by_name import code_digest
from envs.problem import Judgement, Verdict

_INTEGER = re.compile(r"-?[0-9]+")


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
