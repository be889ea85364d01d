"""An environment without programs: the response says an integer, and no sandbox is opened.

An example to copy for other answers; conf/task/sums.yaml names it.
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
        """Judge all, in order. A response without an integer holds no program: SYNTAX_ERROR.

        Raises ValueError for a problem that has not exactly one test.
        """
        return [self._judge(submission) for submission in submissions]

    def _judge(self, submission: Submission) -> Judgement:
        problem = submission.problem
        if len(problem.tests) != 1:
            raise ValueError(f"problem {problem.name}: one test holds the answer, not more or none")
        found = _INTEGER.search(submission.response)
        right = found is not None and _plain(found[0]) == _plain(problem.tests[0].output.strip())
        verdict = Verdict.ACCEPTED if right else Verdict.WRONG_ANSWER
        self.stats.submissions += 1
        self.stats.without_program += found is None
        self.stats.programs_judged += found is not None
        self.stats.tests_run += found is not None
        return Judgement(
            verdict=verdict if found else Verdict.SYNTAX_ERROR,
            passed=int(right),
            total=1,
            run=int(found is not None),
            program=found[0] if found else "",
            detail="" if found else "no integer in the response",
            problem_hash=problem.hash,
            judge_version=self.version,
        )


def _plain(integer: str) -> str:
    """Without leading zeros; as text, since Python reads no integer of 5,000 digits."""
    digits = integer.lstrip("-").lstrip("0") or "0"
    return f"-{digits}" if integer.startswith("-") and digits != "0" else digits
