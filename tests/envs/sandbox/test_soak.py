"""Thousands of programs in one run, right, wrong, slow and hostile: nothing lost, nothing left."""

from __future__ import annotations

import os
import random
import time

import pytest

from envs.judge.extract import as_response
from envs.judge.judge import Judge, Submission
from envs.problem import Problem, Test, Verdict
from tests.envs.programs import ATTACKS
from tests.envs.sandbox.host import Traces, resident_mb
from tests.envs.sandbox.test_attacks import (
    CONFIG,
    KNOWN_OPEN,
    canary,
    judge_innocents,
    problem_for,
    sandbox,
)

__all__ = ["canary", "sandbox"]  # fixtures

PROGRAMS = 5000
SQUARE = Problem(
    "square",
    "",
    (),
    tuple(Test(f"{n}\n", f"{n * n}\n") for n in (1, 2, 3, 50, 1000)),
    time_limit_s=1.0,
)
# share → a program made different by a number, and the verdict that it earns
ORDINARY = {
    0.60: ("n = int(input())\nprint(n * n)  # {}", Verdict.ACCEPTED),
    0.25: ("n = int(input())\nprint(n + {} + 1)", Verdict.WRONG_ANSWER),
    0.05: ("print((  # {}", Verdict.SYNTAX_ERROR),
    0.015: ("while True: pass  # {}", Verdict.TIME_LIMIT),
}
EVERY = 50  # programs between two looks at the memory
FLAT_MB = 40.0  # what the harness may grow by between the first fifth and the end


@pytest.mark.slow
def test_nothing_is_lost_or_left_and_memory_is_flat(sandbox, canary):
    open_to = KNOWN_OPEN if getattr(sandbox, "form", "") == "landlock" else ()
    submissions, allowed = mixture(canary, open_to)
    judge = Judge(sandbox, CONFIG)
    judge_innocents(judge)
    docker = sandbox.name == "docker"
    before = Traces.now(canary.nonce, docker)
    found: dict[int, Verdict] = {}
    sizes: list[float] = []
    for index, judgement in judge.iter_judgements(submissions):
        found[index] = judgement.verdict
        if len(found) % EVERY == 0:
            sizes.append(resident_mb({os.getpid(): ""}))
    assert sorted(found) == list(range(PROGRAMS))
    wrong = {i: (found[i], allowed[i]) for i in found if found[i] not in allowed[i]}
    assert not wrong
    settled = len(sizes) // 5
    assert sizes[-1] - sizes[settled] < FLAT_MB
    deadline = time.monotonic() + 10
    while (after := Traces.now(canary.nonce, docker)) != before and time.monotonic() < deadline:
        time.sleep(0.2)  # a worker in the middle of being replaced
    assert after.files == before.files
    assert after.containers == before.containers
    canary.check()
    judge_innocents(judge)


def mixture(canary, open_to) -> tuple[list[Submission], list[set[Verdict]]]:
    """Submissions in a fixed random order, and the verdicts that each may get.

    Attacks that the sandbox is known to let through, `open_to`, are left out.
    """
    rng = random.Random(0)
    attacks = [
        name for name, attack in ATTACKS.items() if attack.padding < 10**6 and name not in open_to
    ]
    submissions, allowed = [], []
    for number in range(PROGRAMS):
        draw = rng.random()
        for share, (program, verdict) in ORDINARY.items():
            if draw < share:
                response = as_response(program.format(number))
                submissions.append(Submission(SQUARE, response))
                allowed.append({verdict})
                break
            draw -= share
        else:
            attack = ATTACKS[attacks[number % len(attacks)]]
            program = f"{attack.program}\n# {number}"
            submissions.append(Submission(problem_for(attack, canary), as_response(program)))
            allowed.append(set(attack.verdicts))
    return submissions, allowed
