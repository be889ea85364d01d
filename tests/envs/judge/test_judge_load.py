"""Many programs of every kind in one go, on a machine that is busy with something else."""

import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from envs.judge.judge import Judge, JudgeConfig, Submission
from envs.problem import Problem, Test, Verdict
from envs.sandbox import SandboxConfig, open_sandbox

PROGRAMS = 2000
TESTS = tuple(Test(f"{n}\n", f"{n * (n + 1) // 2}\n") for n in (0, 1, 2, 10, 999, 10**6))
PROBLEM = Problem("sum", "Print 0 + 1 + … + n.", (), TESTS, time_limit_s=0.4)
RIGHT = "n = int(input())\nprint(n * (n + 1) // 2)\n"

# verdict → programs that earn it, made different by a number so that none is answered from memory
KINDS = {
    Verdict.ACCEPTED: (
        RIGHT,
        "import sys\nn = int(sys.stdin.readline())\nprint(n * (n + 1) // 2)\n",
        "n = int(input())\nprint(sum(range(n + 1)) if n < 1000 else n * (n + 1) // 2)\n",
    ),
    Verdict.WRONG_ANSWER: (
        "print(0)\n",
        "n = int(input())\nprint(n * n // 2)\n",
        RIGHT + "print(1)\n",
        "import os\nos.write(1, bytes(range(256)) * 64)\n",
    ),
    Verdict.RUNTIME_ERROR: ("1 / 0\n", RIGHT + "raise SystemExit(1)\n", "import os\nos.abort()\n"),
    Verdict.SYNTAX_ERROR: ("print((\n", "def f(:\n"),
    Verdict.MEMORY_LIMIT: (
        "x = [0] * 10**9\n",
        "x = bytearray(1 << 40)\n",
    ),
    Verdict.OUTPUT_LIMIT: ("import os\nwhile True: os.write(1, b'x' * (1 << 20))\n",),
}
SLOW = {Verdict.TIME_LIMIT: ("while True: pass\n", "n = 0\nwhile n >= 0: n += 1\n")}


def batch() -> tuple[list[Submission], list[Verdict]]:
    """Submissions in a fixed order and the verdict that each should get."""
    submissions, verdicts = [], []
    for number in range(PROGRAMS):
        kinds = SLOW if number % 40 == 39 else KINDS
        verdict = list(kinds)[number % len(kinds)]
        program = kinds[verdict][number // len(kinds) % len(kinds[verdict])]
        submissions.append(Submission(PROBLEM, f"```python\n{program}# {number}\n```"))
        verdicts.append(verdict)
    return submissions, verdicts


def resident_mb(pid: int) -> float:
    """What one process holds in memory."""
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


@pytest.fixture
def busy_machine():
    loops = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(2)]
    yield
    for loop in loops:
        loop.kill()
        loop.wait()


@pytest.mark.slow
def test_verdicts_are_right_and_repeat_on_a_busy_machine(busy_machine):
    submissions, expected = batch()
    config = JudgeConfig(time_factor=1.0)
    sizes, judged = [], []
    with open_sandbox(SandboxConfig(kind="embedded", workers=2)) as sandbox:
        for _ in range(3):
            judge = Judge(sandbox, config)
            judgements = judge.judge(submissions)
            assert Counter(j.verdict for j in judgements) == Counter(expected)
            assert [j.verdict for j in judgements] == expected
            judged.append([(j.passed, j.run, j.program) for j in judgements])
            assert (judge.stats.programs_judged, judge.stats.infra_errors) == (PROGRAMS, 0)
            sizes.append(resident_mb(os.getpid()))
    assert judged[0] == judged[1] == judged[2]
    assert sizes[-1] < sizes[0] + 20
