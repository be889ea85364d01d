"""Every attack, as one-shot and from a runner.

In the fast tests each attack meets one sandbox of this machine: they take turns. Slow tests hold
it against all of them.

After each: both verdicts are ones that are right, an innocent program and a wrong one are judged as
they should be, no process, file, memory or container is left, and the host's canaries (a file, a
listening socket, a process) are untouched.
"""

from __future__ import annotations

import functools
import json
import secrets as randomness
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from envs.judge.extract import as_response
from envs.judge.judge import Judge, JudgeConfig, Submission
from envs.problem import Judgement, Problem, Test, Verdict
from envs.sandbox import SandboxConfig, open_sandbox
from envs.sandbox.base import Sandbox
from envs.sandbox.docker import unavailable
from envs.sandbox.embedded import EmbeddedSandbox, form_unavailable
from tests.envs.attacks import escapes, network, resources, secrets, tricks
from tests.envs.attacks.base import HELD, Attack, probe
from tests.envs.attacks.host import Canary, Traces, descendants, resident_mb
from tests.envs.paths import PATHS, OnPath
from tests.envs.turns import OneOpen, sandbox_in_turn, turns_and_pairs

GROUPS = {
    "resources": resources,
    "network": network,
    "secrets": secrets,
    "escapes": escapes,
    "tricks": tricks,
}
ATTACKS = {
    f"{group}: {name}": attack
    for group, module in GROUPS.items()
    for name, attack in module.ATTACKS.items()
}
CONFIG = JudgeConfig(
    time_factor=1.0, time_margin=0.2, wall_factor=4.0, min_memory_limit_mb=64, output_limit_mb=2
)
MEMORY_LIMIT_MB = 128

SANDBOXES = ["embedded-namespaces", "embedded-landlock", "docker"]
# What the weaker form is known to let through: it hides no names and attributes of files.
KNOWN_OPEN = {
    ("embedded-landlock", "secrets: list the host's folders"),
    ("embedded-landlock", "escapes: set-user-id programs"),
}
# Judged by limits that do not depend on the form, so that one embedded form is enough.
FORM_INDEPENDENT = {
    "resources: endless recursion",
    "resources: endless recursion in C",
    "resources: huge integer",
    "resources: huge integer as text",
    "resources: loop inside an exit handler",
    "resources: memory hog in one piece",
    "resources: memory hog in threads",
    "resources: regular expression that explodes",
    "resources: sleep forever",
    "resources: stdin never read",
    "resources: wait forever on a lock",
    "resources: 1 GB on stderr",
}
# The same limits of CPU and wall time as in "infinite loop" and "sleep forever", which Docker is
# attacked by; inside the container the same code enforces them as under namespaces.
TIME_ALONE = {
    "resources: huge integer",
    "resources: huge integer as text",
    "resources: loop inside an exit handler",
    "resources: regular expression that explodes",
    "resources: wait forever on a lock",
}
# What the weaker form lets through is attacked under the stronger one, which has the first turn.
TURNS_AND_PAIRS = turns_and_pairs(ATTACKS, SANDBOXES, first={name for _, name in KNOWN_OPEN})
# Calls that change nothing, but tell what a hostile one would reach.
GATE = probe(
    """
attempt("everyone", os.kill, -1, 0)
attempt("canary", os.kill, world["pid"], 0)
attempt("read", open, world["file"])
attempt("write", open, os.__file__, "r+b")
attempt("chmod", os.chmod, os.__file__, 0o644)
library = os.path.dirname(os.__file__)  # a folder that is not empty cannot be removed
for name, action in (("rename", lambda: os.rename(os.__file__, os.__file__)),
                     ("rmdir", lambda: os.rmdir(library))):
    try:
        action()
    except OSError as error:
        if error.errno not in (errno.EPERM, errno.EACCES, errno.EROFS):
            leaks.append(name)
"""
)


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
    return sandbox_in_turn(request.param, SANDBOXES, lacking)


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
        (gate,) = judge.judge([Submission(problem_for(GATE, canary), as_response(GATE.program))])
        assert gate.verdict is Verdict.ACCEPTED, f"this sandbox does not hold: {gate.detail}"
        yield sandbox, at_rest(canary, name == "docker"), resident_mb(descendants())


@pytest.fixture(
    scope="module",
    params=[*SANDBOXES[:2], pytest.param("docker", marks=pytest.mark.docker)],
)
def sandbox(request, canary) -> Iterator[Sandbox]:
    """Every sandbox of this machine, for the tests of other files."""
    with attacked(request.param, canary) as (sandbox, *_):
        yield sandbox


@functools.cache
def lacking(name: str) -> str | None:
    """Return why this machine does not have the sandbox called `name`; None if it has."""
    if name == "docker":
        return unavailable()
    return form_unavailable(name.removeprefix("embedded-"))


def open_one(name: str) -> Sandbox:
    """One worker of the sandbox called `name`; skips where the machine has none."""
    if reason := lacking(name):
        pytest.skip(f"attacks on the {name} sandbox left out: {reason}")
    if name == "docker":
        return open_sandbox(SandboxConfig(kind="docker", workers=1))
    return EmbeddedSandbox(workers=1, form=name.removeprefix("embedded-"))


def problem_for(attack: Attack, canary: Canary) -> Problem:
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
        time_limit_s=attack.test_time_limit_s,
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


@functools.cache
def have_namespaces() -> bool:
    """Return whether this machine has the stronger embedded form."""
    return form_unavailable("namespaces") is None


def at_rest(canary: Canary, docker: bool) -> Traces:
    """Return the host's traces once every container has started its server and zygote."""
    deadline = time.monotonic() + 20
    while True:
        traces = Traces.now(canary.nonce, docker)
        containers, processes = traces.containers
        if processes == 2 * containers or time.monotonic() > deadline:
            return traces
        time.sleep(0.02)


@pytest.mark.parametrize(("name", "kind"), TURNS_AND_PAIRS, indirect=["kind"])
def test_attack(name, kind, opened, canary, request):
    attack = ATTACKS[name]
    expected = attack.verdicts
    docker = kind == "docker"
    elsewhere = request.node.get_closest_marker("slow") and have_namespaces()
    if kind == "embedded-landlock" and name in FORM_INDEPENDENT and elsewhere:
        pytest.skip("its limits do not depend on the form; attacked under namespaces")
    if docker and name in TIME_ALONE and elsewhere:
        pytest.skip("limits of time that other attacks on Docker meet; attacked under namespaces")
    if (kind, name) in KNOWN_OPEN:
        expected = {Verdict.WRONG_ANSWER}
    sandbox, traces_before, resident_before = opened.at(kind)
    submission = Submission(problem_for(attack, canary), as_response(attack.program))
    judgements = {}
    for path in PATHS:
        judge = Judge(OnPath(sandbox, path), CONFIG)
        judgements[path] = judged_with_a_core(judge, submission)
    judge_innocents(judge)
    deadline = time.monotonic() + 20
    while (
        after := Traces.now(canary.nonce, docker)
    ) != traces_before and time.monotonic() < deadline:
        time.sleep(0.02)
    for path, judgement in judgements.items():
        assert judgement.verdict in expected, (path, judgement.detail)
        if attack.hunts:
            assert judgement.passed == attack.tests - 1, (path, judgement.detail)
            assert judgement.detail.endswith("found 'HELD'")
    assert after == traces_before
    assert resident_mb(after.descendants) < resident_before + 64
    canary.check()


def test_there_are_enough_attacks():
    assert len(ATTACKS) >= 122  # none may go


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
def test_an_attack_succeeds_where_nothing_holds_it(name, monkeypatch):
    canary = Canary()
    monkeypatch.setenv("SPO_BENCH_CANARY", canary.nonce)
    try:
        assert unconfined(ATTACKS[name].program, canary).startswith("BROKEN:")
    finally:
        canary.close()


@pytest.mark.parametrize(
    "where", ["among all objects", "in the frames below", "in this process's memory"]
)
def test_a_hunt_finds_a_secret_that_is_there(where):
    canary = Canary()
    secret = fresh_secret()
    planted = f"planted = ['SEC', {secret[3:]!r}]\nplanted = [''.join(planted)] * 3\n"
    try:
        output = unconfined(planted + ATTACKS[f"secrets: other tests {where}"].program, canary)
        assert secret in output
    finally:
        canary.close()


def unconfined(program: str, canary: Canary) -> str:
    """Return the output of a program that runs as an ordinary process of this machine."""
    done = subprocess.run(
        [sys.executable, "-c", program],
        input=problem_for(Attack(program), canary).tests[0].input,
        capture_output=True,
        text=True,
        timeout=600,
        cwd=canary.folder,
    )
    assert not done.stderr
    return done.stdout
