"""The budget of a program: what all its tests may use together of time that no right program needs.

CPU time on tests that a program passes is never counted: with 200 tests, a right program may use
60 times one test's limit. Counted are the CPU time of tests that ended at a time limit, which only
matters where judging goes on after a failure, and the time in which a program waited by itself.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from envs.judge.grading import Grade
from envs.problem import Verdict


@dataclass(slots=True)
class Budget:
    """What one run of a program may use, and what it has used."""

    cpu_s: float  # of tests that end at a time limit
    idle_s: float  # of all tests: neither running nor waiting for a core
    used_cpu_s: float = 0.0
    used_idle_s: float = 0.0

    def charge(self, grade: Grade, cpu_s: float, idle_s: float) -> Grade:
        """Count a test; return its grade, which says so if the budget is used up.

        A program whose tests wait too long together is at a time limit, whatever they print.
        """
        self.used_idle_s += idle_s
        if grade.verdict is Verdict.TIME_LIMIT:
            self.used_cpu_s += cpu_s
        if self.used_idle_s > self.idle_s:
            ended = f"waited {self.used_idle_s:.1f} s in all (budget {self.idle_s:g} s)"
            if grade.verdict is Verdict.ACCEPTED:
                grade = replace(grade, verdict=Verdict.TIME_LIMIT, detail="")
            return replace(grade, ended=ended, by_wall_time=True)
        if self.used_cpu_s > self.cpu_s:
            ended = f"time-outs took {self.used_cpu_s:.1f} s CPU (budget {self.cpu_s:g} s)"
            return replace(grade, ended=ended)
        return grade

    def fresh(self) -> Budget:
        """Return the budget of another run."""
        return Budget(self.cpu_s, self.idle_s)
