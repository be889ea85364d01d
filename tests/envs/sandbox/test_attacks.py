"""Every attack, as one-shot and from a runner.

After each: both verdicts are ones that are right, an innocent program and a wrong one are judged as
they should be, no process, file, memory or container is left, and the host's canaries (a file, a
listening socket, a process) are untouched.
"""

from __future__ import annotations

import json
import secrets as randomness
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from envs.judge.extract import as_response
from envs.judge.judge import Judge, JudgeConfig, Submission
from envs.problem import Judgement, Problem, Test, Verdict
from envs.sandbox.base import Sandbox
from tests.envs.programs import ATTACKS, HELD, Program, tool
from tests.envs.sandbox.host import Canary, Traces, descendants, eventually, resident_mb
from tests.envs.sandboxes import (
    EVERY_SANDBOX,
    PATHS,
    OneOpen,
    OnPath,
    open_one,
    sandbox_in_turn,
    turns_and_pairs,
)

CONFIG = JudgeConfig(
    time_factor=1.0, time_margin=0.2, wall_factor=4.0, min_memory_limit_mb=64, output_limit_mb=2
)
MEMORY_LIMIT_MB = 128
# What the weaker form is known to let through: it hides no names and attributes of files.
KNOWN_OPEN = {"secrets: list the host's folders", "escapes: set-user-id programs"}
# Calls that change nothing, but tell what a hostile one would reach.
GATE = tool("gate.py")


@pytest.fixture(scope="module")
def canary():
    canary = Canary()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SPO_BENCH_CANARY", canary.nonce)
        yield canary
    canary.close()


@pytest.fixture
def kind(request) -> str:
    """The name of the attacked sandbox."""
    return sandbox_in_turn(request.param)


@pytest.fixture(scope="module")
def opened(canary) -> Iterator[OneOpen]:
    with OneOpen(lambda name: attacked(name, canary)) as opened:
        yield opened


@contextmanager
def attacked(name: str, canary: Canary) -> Iterator[tuple[Sandbox, Traces, float]]:
    """A sandbox that holds, the host's traces, and the resident memory of all that this process
    has started."""
    with open_one(name) as sandbox:
        judge = Judge(sandbox, CONFIG)
        judge_innocents(judge)
        # Nothing hostile runs before this holds: the programs would otherwise hit the host.
        gate = Program(GATE)
        (held,) = judge.judge([Submission(problem_for(gate, canary), as_response(GATE))])
        assert held.verdict is Verdict.ACCEPTED, f"this sandbox does not hold: {held.detail}"
        yield sandbox, at_rest(canary, name == "docker"), resident_mb(descendants())


@pytest.fixture(scope="module", params=EVERY_SANDBOX)
def sandbox(request, canary) -> Iterator[Sandbox]:
    """Every sandbox of this machine, for the tests of other files."""
    with attacked(request.param, canary) as (sandbox, *_):
        yield sandbox


def problem_for(attack: Program, canary: Canary) -> Problem:
    """As many tests as the attack wants, each with a fresh secret in its input."""
    tests = []
    for _ in range(attack.tests):
        world = {**canary.world(), "secret": fresh_secret()}
        if attack.fn_name:
            tests.append(Test(json.dumps([world]), json.dumps(HELD.strip())))
        else:
            tests.append(Test(json.dumps(world) + "\n" + "x" * attack.padding, HELD))
    if attack.hunts:
        tests[-1] = Test(tests[-1].input, fresh_secret())
    return Problem(
        name="attack",
        statement="",
        samples=(),
        tests=tuple(tests),
        checker="call" if attack.fn_name else "tokens",
        fn_name=attack.fn_name,
        time_limit_s=attack.time_limit_s,
        memory_limit_mb=MEMORY_LIMIT_MB,
    )


def fresh_secret() -> str:
    """A token that the hunting programs know when they see it."""
    return f"SECRET-{randomness.token_hex(8)}"


def judge_innocents(judge: Judge) -> None:
    """A right and a wrong program on two inputs; unlike any before, so that none is remembered."""
    tests = (Test("3 4\n", "7\n"), Test("-1 1\n", "0\n"))
    problem = Problem("sum", "", (), tests, time_limit_s=5.0)
    tag = f"# {randomness.token_hex(4)}\n"
    right = f"{tag}a, b = map(int, input().split())\nprint(a + b)"
    wrong = f"{tag}a, b = map(int, input().split())\nprint(a - b)"
    verdicts = [j.verdict for j in judge.judge([Submission(problem, p) for p in (right, wrong)])]
    assert verdicts == [Verdict.ACCEPTED, Verdict.WRONG_ANSWER]


def judged_with_a_core(judge: Judge, submission: Submission) -> Judgement:
    """Judge a program, and again as long as it got no core, which says nothing about it."""
    for _ in range(20):
        [judgement] = judge.judge([submission])
        if not judgement.detail.endswith("no core was free"):
            break
    return judgement


def at_rest(canary: Canary, docker: bool) -> Traces:
    """Return the host's traces once every container has started its server and zygote."""

    def rests() -> Traces | None:
        traces = Traces.now(canary.nonce, docker)
        containers, processes = traces.containers
        return traces if processes == 2 * containers else None

    return eventually(rests, 20, 0.02) or Traces.now(canary.nonce, docker)


@pytest.mark.parametrize(
    # What the weaker form lets through is attacked under the stronger one, which comes first.
    ("name", "kind"),
    turns_and_pairs(ATTACKS, first=KNOWN_OPEN),
    indirect=["kind"],
)
def test_attack(name, kind, opened, canary):
    attack = ATTACKS[name]
    expected = attack.verdicts
    if kind == "landlock" and name in KNOWN_OPEN:
        expected = {Verdict.WRONG_ANSWER}
    sandbox, traces_before, resident_before = opened.at(kind)
    submission = Submission(problem_for(attack, canary), as_response(attack.program))
    judgements = {}
    for path in PATHS:
        judge = Judge(OnPath(sandbox, path), CONFIG)
        judgements[path] = judged_with_a_core(judge, submission)
    judge_innocents(judge)
    docker = kind == "docker"
    rests = eventually(lambda: Traces.now(canary.nonce, docker) == traces_before, 20, 0.02)
    for path, judgement in judgements.items():
        assert judgement.verdict in expected, (path, judgement.detail)
        if attack.hunts:
            assert judgement.passed == attack.tests - 1, (path, judgement.detail)
            assert judgement.detail.endswith("found 'HELD'")
    assert rests, (Traces.now(canary.nonce, docker), traces_before)
    assert resident_mb(descendants()) < resident_before + 64
    canary.check()


def test_no_program_has_gone():
    assert len(ATTACKS) >= 126


# Those that do no harm where nothing holds them: they must then say what they reached.
BITING = [
    "network: connect to the host's port",
    "network: abstract unix socket of the host",
    "secrets: read /etc/passwd",
    "secrets: read the host's file by other ways",
    "secrets: list the host's folders",
    "secrets: find the host's canary process",
    "secrets: environment variables",
    "escapes: become another user",
]


@pytest.mark.parametrize("name", BITING)
def test_an_attack_succeeds_where_nothing_holds_it(name, canary):
    assert unconfined(ATTACKS[name].program, canary).startswith("BROKEN:")


@pytest.mark.parametrize(
    "where", ["among all objects", "in the frames below", "in this process's memory"]
)
def test_a_hunt_finds_a_secret_that_is_there(where, canary):
    secret = fresh_secret()
    planted = f"planted = ['SEC', {secret[3:]!r}]\nplanted = [''.join(planted)] * 3\n"
    assert secret in unconfined(planted + ATTACKS[f"secrets: other tests {where}"].program, canary)


def unconfined(program: str, canary: Canary) -> str:
    """Return the output of a program that runs as an ordinary process of this machine."""
    done = subprocess.run(
        [sys.executable, "-c", program],
        input=problem_for(Program(program), canary).tests[0].input,
        capture_output=True,
        text=True,
        timeout=600,
        cwd=canary.folder,
    )
    assert not done.stderr
    return done.stdout
