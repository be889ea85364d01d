"""A session of the judge says and learns the same, however its submissions are cut and ordered."""

import random
import threading
from contextlib import closing
from dataclasses import asdict, replace

import pytest

from envs.judge.judge import Judge, Submission
from envs.problem import Problem, Test
from envs.sandbox.base import Outcome, Sandbox, SandboxError

TESTS = tuple(Test(f"{n}\n", f"{n * n}\n") for n in (1, 2, 3, -4, 5, 6))
SQUARES = [Problem(f"square {n}", "", (), TESTS[n:], time_limit_s=n + 1.0) for n in range(3)]
PROGRAMS = (
    "n = int(input())\nprint(n * n)",
    "n = int(input())\nprint(n)",
    "n = int(input())\nprint(n * abs(n))",
    "print(1 / 0)",
    "print((",
    "no program",
)


class Starving(Sandbox):
    """Leaves each program's first run on test 3 in doubt."""

    name = strength = "starving"

    def __init__(self, inner, outcome):
        self.inner, self.starved, self.outcome = inner, set(), outcome

    def run(self, jobs, keep_going):
        def asked(at, position, execution):
            key = (jobs[at].program, jobs[at].inputs)
            if position == 2 and key not in self.starved:
                self.starved.add(key)
                execution.outcome = self.outcome
            return keep_going(at, position, execution)

        yield from self.inner.run(jobs, asked)

    def close(self):
        pass


def submissions():
    """Twice: programs that come again, in another order."""
    drawn = random.Random(0)
    made = [Submission(p, program) for p in SQUARES for program in PROGRAMS] * 2
    drawn.shuffle(made)
    return list(enumerate(made))


def told(judge, pieces):
    """All that may not depend on the pieces."""
    found = {}
    with closing(judge.open_session()) as session:
        for piece in pieces:
            found.update(session.judge(piece))
        found.update(session.finish())
    judgements = [replace(found[index], cpu_s=0.0) for index in sorted(found)]
    known = judge.state_dict()
    cached = [(key, replace(judged, cpu_s=0.0)) for key, judged in known["cache"].items()]
    stats = asdict(judge.stats) | {"cpu_s": 0.0}
    return judgements, cached, known["problems"], stats


@pytest.mark.parametrize("size", [1, 4, 7])
@pytest.mark.parametrize("starving", [None, Outcome.STARVED, Outcome.INFRA_ERROR])
def test_pieces_in_any_order_are_judged_as_one_call(real_sandbox, size, starving):
    made = submissions()
    mixed = random.Random(size).sample(made, len(made))
    pieces = [mixed[at : at + size] for at in range(0, len(mixed), size)]

    def opened():
        return Starving(real_sandbox, starving) if starving else real_sandbox

    whole = told(Judge(opened()), [made])
    assert told(Judge(opened()), pieces) == whole
    assert whole[-1]["judged_again"] == (5 if starving else 0)  # as many run test 3


def test_a_session_that_is_abandoned_ends_soon_and_leaves_a_sandbox_that_works(real_sandbox):
    judge = Judge(real_sandbox)
    slow = Problem("slow", "", (), (Test("", ""),), time_limit_s=100.0)
    failed = []

    def sit():
        try:
            judge.judge([Submission(slow, "import time\ntime.sleep(90)")])
        except SandboxError as error:
            failed.append(str(error))

    thread = threading.Thread(target=sit)
    thread.start()
    while thread.is_alive():
        judge.abandon()
        thread.join(0.1)
    assert "abandoned" in failed[0]
    assert judge.stats.programs_judged == 0
    (judgement,) = judge.judge([Submission(SQUARES[0], PROGRAMS[0])])
    assert judgement.passed == len(TESTS)
