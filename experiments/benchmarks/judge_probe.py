"""Judge workloads with the `envs` of the checkout that this runs in.

    python -m experiments.benchmarks.judge_probe WAY

WAY: a backend of the sandbox; `processes`, a new Python process for each test, stopped at the first
failure; or the folder of verl's judge. The last two run programs with this user's rights.

stdin: a JSON line with all workloads, then the name of a workload on each line. stdout: a JSON line
with the counts of one pass for each name. `judge.py` measures its time, and copies this file into
other checkouts, so it imports nothing but `envs`.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from envs import Judge, Problem, Submission, Test
from envs.sandbox.docker import DockerSandbox, unavailable
from envs.sandbox.embedded import EmbeddedSandbox, form_unavailable

ACCEPTED, REJECTED = "right programs accepted", "wrong programs rejected"
PROCESSES = "processes"
LIMIT_S = 10.0  # of a new process for each test, in wall time; the judge's default is 4 s of CPU
VERL = Path("verl", "utils", "reward_score", "prime_code")
Judging = Callable[[Sequence[Submission]], Sequence[Any]]  # verdict, detail, run of each


@dataclass(frozen=True)
class Workload:
    """Programs to judge, in plain data, so that all checkouts judge the same bytes."""

    name: str
    problems: list[dict[str, Any]]  # tests as (input, output) pairs, other fields of Problem
    responses: list[tuple[int, str, bool]]  # problem, program, whether it is right
    labels_hold: bool = True  # False: a data set calls the programs right or wrong


@dataclass(frozen=True)
class Outcome:
    """What is known of a program that was judged without a sandbox, in the terms of the judge."""

    verdict: str
    run: int = 0
    detail: str = ""


def without_sandbox(accepts: Callable[[Problem, str], bool]) -> Judging:
    """A judge, from a function that says whether a program is accepted."""

    def judge(submissions: Sequence[Submission]) -> list[Outcome]:
        accepted = [accepts(each.problem, each.response) for each in submissions]
        return [Outcome("ACCEPTED" if each else "REJECTED") for each in accepted]

    return judge


def new_processes(problem: Problem, program: str) -> bool:
    """Run each test in a new Python process, up to the first failure."""
    from envs.judge.checkers import check  # of this checkout: an older one may have it elsewhere

    with tempfile.NamedTemporaryFile("w", suffix=".py") as file:
        file.write(program)
        file.flush()
        for test in problem.tests:
            command, given = [sys.executable, "-I", file.name], test.input.encode()
            try:
                done = subprocess.run(
                    command, input=given, capture_output=True, timeout=LIMIT_S, check=False
                )
            except subprocess.TimeoutExpired:
                return False
            if done.returncode or not check(problem.checker, test.output, done.stdout)[0]:
                return False
    return True


def verl_judge(folder: Path) -> Callable[[Problem, str], bool]:
    """verl's judge of contest programs: a process for each program, and the tests in it."""
    sys.path.insert(0, str((folder / VERL).parent))
    from prime_code import compute_score

    def accepts(problem: Problem, program: str) -> bool:
        tests = {"inputs": [test.input for test in problem.tests]}
        tests["outputs"] = [test.output for test in problem.tests]
        return compute_score(f"```python\n{program}\n```", tests, continuous=True)[0] == 1

    return accepts


class Probe:
    """One way to judge. Each workload has a judge of its own, which stays warm."""

    def __init__(self, new_judge: Callable[[], Judging], workloads: Sequence[Workload]) -> None:
        self._passes = 0
        self._workloads = {each.name: (new_judge(), problems(each), each) for each in workloads}

    def judge(self, name: str) -> dict[str, int]:
        """One pass: numbers of programs, of tests, and of verdicts that agree with the labels.

        A verdict other than the label raises RuntimeError if the labels are known to hold.
        """
        judge, problems, workload = self._workloads[name]
        self._passes += 1  # makes the programs new to the judge's cache
        outcomes = judge(
            [
                Submission(problems[index], f"{program}\n# {self._passes}")
                for index, program, _ in workload.responses
            ]
        )
        agreed = {True: 0, False: 0}  # by label
        for outcome, (_, program, right) in zip(outcomes, workload.responses, strict=True):
            agrees = (outcome.verdict == "ACCEPTED") is right
            agreed[right] += agrees
            if workload.labels_hold and not agrees:
                raise RuntimeError(f"{outcome.verdict}, {outcome.detail}: {program}")
        counts = {"programs": len(outcomes), "tests": sum(outcome.run for outcome in outcomes)}
        return counts | {ACCEPTED: agreed[True], REJECTED: agreed[False]}


def problems(workload: Workload) -> list[Problem]:
    """The problems of a workload, without statements."""
    made = []
    for number, fields in enumerate(workload.problems):
        tests = tuple(Test(*pair) for pair in fields["tests"])
        others = {key: value for key, value in fields.items() if key != "tests"}
        made.append(Problem(f"{workload.name}/{number}", "", (), tests, **others))
    return made


@contextmanager
def open_way(way: str) -> Iterator[Callable[[], Judging]]:
    """What makes judges of this way, with a sandbox that is closed afterwards if it needs one."""
    if way == PROCESSES:
        yield lambda: without_sandbox(new_processes)
    elif "/" in way:
        verl = verl_judge(Path(way))
        yield lambda: without_sandbox(verl)
    else:
        with DockerSandbox() if way == "docker" else EmbeddedSandbox(form=way) as sandbox:
            yield lambda: Judge(sandbox).judge


def missing(way: str) -> str | None:
    """Why this machine lacks a backend; None if it does not, and for the ways without a sandbox."""
    if way == PROCESSES or "/" in way:
        return None
    return unavailable() if way == "docker" else form_unavailable(way)


def main() -> None:
    """Judge until stdin ends."""
    way, answers = sys.argv[1], os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what verl prints is no answer
    workloads = [Workload(**workload) for workload in json.loads(sys.stdin.readline())]
    reason = missing(way)
    print(json.dumps({"unavailable": reason}), file=answers, flush=True)
    if reason is None:
        with open_way(way) as new_judge:
            probe = Probe(new_judge, workloads)
            for line in sys.stdin:
                print(json.dumps(probe.judge(json.loads(line))), file=answers, flush=True)


if __name__ == "__main__":
    main()
