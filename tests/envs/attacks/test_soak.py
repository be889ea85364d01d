"""Thousands of programs in one run, right, wrong, slow and hostile: nothing lost, nothing left.

Each backend's memory goes to bench/soak-NAME.csv and .png: the harness, and all that it started.
"""

from __future__ import annotations

import csv
import os
import random
import time
from pathlib import Path

import pytest

from envs.judge.extract import as_response
from envs.judge.judge import Judge, Submission
from envs.problem import Problem, Test, Verdict
from tests.envs.attacks.host import Traces, descendants, resident_mb
from tests.envs.attacks.test_attacks import (
    ATTACKS,
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
OUT = Path(__file__).resolve().parents[3] / "bench"


@pytest.mark.slow
def test_nothing_is_lost_or_left_and_memory_is_flat(sandbox, canary):
    form = "docker" if sandbox.name == "docker" else f"embedded-{sandbox.form}"
    submissions, allowed = mixture(canary, form)
    judge = Judge(sandbox, CONFIG)
    judge_innocents(judge)
    docker = sandbox.name == "docker"
    before = Traces.now(canary.nonce, docker)
    found: dict[int, Verdict] = {}
    sizes: list[tuple[int, float, float]] = []
    for index, judgement in judge.iter_judgements(submissions):
        found[index] = judgement.verdict
        if len(found) % EVERY == 0:
            own, started = resident_mb({os.getpid(): ""}), resident_mb(descendants())
            sizes.append((len(found), own, started))
    write(sandbox.name, sizes)
    assert sorted(found) == list(range(PROGRAMS))
    wrong = {i: (found[i], allowed[i]) for i in found if found[i] not in allowed[i]}
    assert not wrong
    settled = len(sizes) // 5
    assert sizes[-1][1] - sizes[settled][1] < FLAT_MB
    deadline = time.monotonic() + 10
    while (after := Traces.now(canary.nonce, docker)) != before and time.monotonic() < deadline:
        time.sleep(0.2)  # a worker in the middle of being replaced
    assert after.files == before.files
    assert after.containers == before.containers
    canary.check()
    judge_innocents(judge)


def mixture(canary, form) -> tuple[list[Submission], list[set[Verdict]]]:
    """Submissions in a fixed random order, and the verdicts that each may get.

    Attacks that the sandbox `form` is known to let through are left out.
    """
    rng = random.Random(0)
    attacks = [
        name
        for name, attack in ATTACKS.items()
        if attack.padding < 10**6 and (form, name) not in KNOWN_OPEN
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


def write(name: str, sizes: list[tuple[int, float, float]]) -> None:
    """Resident memory by programs judged, as CSV and plot."""
    import matplotlib

    matplotlib.use("agg")
    from matplotlib import pyplot

    OUT.mkdir(exist_ok=True)
    with (OUT / f"soak-{name}.csv").open("w", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(("programs", "harness_mb", "started_mb"))
        rows.writerows(sizes)
    figure, axes = pyplot.subplots(figsize=(6, 3.5), layout="constrained")
    programs, own, started = zip(*sizes, strict=True)
    axes.plot(programs, own, label="the harness")
    axes.plot(programs, started, label="all that it started")
    axes.set(xlabel="programs judged", ylabel="resident memory (MB)", ylim=(0, None))
    axes.legend(frameon=False)
    figure.savefig(OUT / f"soak-{name}.png", dpi=150)
    pyplot.close(figure)
