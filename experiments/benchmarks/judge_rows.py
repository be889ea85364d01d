"""`make bench-judge ARGS="task=NAME path=PATH"`: the judge on a data set's own programs.

Real rows differ from the made workloads: up to hundreds of tests, large inputs, programs that take
seconds. Our backends run beside two ways that need no sandbox, in turn, on the same programs:

- a new Python process for each test, stopped at the first failure, with our checker;
- the judge of verl, if `verl=FOLDER` names one (pip install --no-deps --target FOLDER verl==0.9.1):
  a process for each program, and the tests in it, as verl's reward calls it.

Both run the data set's programs with this user's rights: only for data sets that you trust.
"""

from __future__ import annotations

import random
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from envs.judge.checker import check
from envs.problem import Problem
from envs.tasks.task_cli import task_config
from envs.validate import load_problems
from experiments.benchmarks.judge_probe import Workload, agreement, own_cpu_s
from experiments.errors import UserError

LIMIT_S = 10.0  # of a new process for each test, in wall time; the judge's default is 4 s of CPU
VERL = Path("verl", "utils", "reward_score")


@dataclass(frozen=True)
class RowWorkload:
    """Problems, and (problem, program, right) for each of the data set's own programs."""

    name: str
    problems: list[Problem]
    responses: list[tuple[int, str, bool]]


def load_rows(task: str, path: Path, programs: int) -> RowWorkload:
    """A sample of the programs for standard input whose outputs a comparison can judge.

    At most two right and two wrong ones of each problem. Raises UserError if there are none.
    """
    config = task_config([f"task={task}", f"task.path={path}"])
    problems: list[Problem] = []
    responses: list[tuple[int, str, bool]] = []
    for problem in load_problems(config, Counter()):
        if not problem.tests or problem.fn_name or problem.checker == "needs_checker":
            continue
        labelled = [(program, True) for program in problem.solutions[:2]]
        labelled += [(program, False) for program in problem.incorrect_solutions[:2]]
        responses += [(len(problems), program, right) for program, right in labelled]
        problems.append(problem)
    if not responses:
        raise UserError(f"path={path}: no program for standard input that a comparison can judge")
    sample = random.Random(0).sample(responses, min(programs, len(responses)))
    return RowWorkload(path.stem, problems, sample)


def for_probe(workload: RowWorkload) -> Workload:
    """The workload in plain data, for `judge_probe`."""
    problems = [
        {
            "tests": [(test.input, test.output) for test in problem.tests],
            "checker": problem.checker,
            "time_limit_s": problem.time_limit_s,
            "memory_limit_mb": problem.memory_limit_mb,
        }
        for problem in workload.problems
    ]
    return Workload(workload.name, problems, workload.responses, labels_hold=False)


def measure(workload: RowWorkload, verl: Path | None) -> dict[str, float]:
    """Cost and agreement of one pass without a sandbox, as `judge_probe` returns them.

    By verl's judge if its folder is given, else by a new process for each test.
    """
    judge = verl_judge(verl) if verl else new_processes
    cpu_s, start = own_cpu_s(), time.perf_counter()
    accepted = [
        judge(workload.problems[index], program) for index, program, _ in workload.responses
    ]
    cost = {"wall_s": time.perf_counter() - start, "cpu_s": own_cpu_s() - cpu_s}
    rights = [right for *_, right in workload.responses]
    return {"programs": len(accepted), **cost, **agreement(accepted, rights)}


def new_processes(problem: Problem, program: str) -> bool:
    """Run each test in a new Python process, up to the first failure."""
    with tempfile.NamedTemporaryFile("w", suffix=".py") as file:
        file.write(program)
        file.flush()
        for test in problem.tests:
            command = [sys.executable, "-I", file.name]
            try:
                done = subprocess.run(
                    command,
                    input=test.input.encode(),
                    capture_output=True,
                    timeout=LIMIT_S,
                    check=False,
                )
            except subprocess.TimeoutExpired:
                return False
            if done.returncode or not check(problem.checker, test.output, done.stdout)[0]:
                return False
    return True


def verl_judge(folder: Path) -> Callable[[Problem, str], bool]:
    """verl's judge of contest programs. Raises UserError if the folder has none."""
    package = folder / VERL
    if not (package / "prime_code").is_dir():
        raise UserError(f"verl={folder}: no {VERL}/prime_code in it; see {__name__}")
    sys.path.insert(0, str(package))
    from prime_code import compute_score

    def judge(problem: Problem, program: str) -> bool:
        tests = {
            "inputs": [test.input for test in problem.tests],
            "outputs": [test.output for test in problem.tests],
        }
        return compute_score(f"```python\n{program}\n```", tests, continuous=True)[0] == 1

    return judge
