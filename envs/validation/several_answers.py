"""Evidence that a problem has several right answers although its checker compares with one.

Rules on the statement miss unusual phrases. The data set's own programs show two more signs: right
programs that disagree with each other, and failing programs whose outputs look like the expected
one. Both come from verdicts, so they cost no run; neither is a proof. Problems with a checker
program are not asked: it decides.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from envs.problem import Judgement, Problem, Verdict

MIN_ALIKE = 3  # failing programs with a like output, at least half of those with a wrong answer
_DIFFERENCE = re.compile(r"test ([0-9]{1,9}): token ([0-9]{1,9}): ")


@dataclass
class AnswerEvidence:
    """Counts over one problem's own programs."""

    right_accepted: int = 0
    right_differing: int = 0  # right programs with a wrong answer
    wrong_answers: int = 0  # of right and wrong programs
    alike: int = 0  # of wrong_answers: equal in the first line and in the number of tokens
    rivals: bool = False  # two right programs differ from the expected output and each other
    example: str = ""  # how a right program's answer, or one that is alike, differs
    # test → the first difference of the first right program whose answer differs there
    _found: dict[str, str] = field(default_factory=dict)

    def add(self, problem: Problem, right: bool, judgement: Judgement) -> None:
        """Count one program. `right`: the data set says that it is correct."""
        self.right_accepted += right and judgement.verdict is Verdict.ACCEPTED
        if judgement.verdict is not Verdict.WRONG_ANSWER:
            return
        alike = _is_alike(problem, judgement.detail)
        self.wrong_answers += 1
        self.right_differing += right
        self.alike += alike
        if right and (difference := _DIFFERENCE.match(judgement.detail)):
            before = self._found.setdefault(difference[1], judgement.detail)
            self.rivals |= before != judgement.detail
        if right or (alike and not self.example):
            self.example = judgement.detail

    def line(self) -> str:
        """Return the evidence in words; "" if there is too little."""
        signs = []
        both = self.right_accepted + self.right_differing
        if self.right_accepted and self.right_differing:
            signs.append(f"{self.right_differing} of {both} right programs answer otherwise")
        elif self.rivals:
            signs.append(f"all {both} right programs answer otherwise, and differ from each other")
        if self.alike >= MIN_ALIKE and 2 * self.alike >= self.wrong_answers:
            share = f"{self.alike} of {self.wrong_answers} wrong answers"
            signs.append(f"{share} agree in the first line and the number of tokens")
        return f"{', '.join(signs)}; e.g. {self.example}" if signs else ""


def _is_alike(problem: Problem, detail: str) -> bool:
    """Return whether an output of several lines has the expected length and first line.

    The checker names the first token that differs only if the numbers of tokens are equal.
    """
    difference = _DIFFERENCE.match(detail)
    if difference is None or int(difference[1]) >= len(problem.tests):
        return False
    first_line, _, rest = problem.tests[int(difference[1])].output.strip().partition("\n")
    return bool(rest) and int(difference[2]) > len(first_line.split())
