"""Every attack, on every sandbox that this machine has.

After each: the verdict is one that is right, an innocent program and a wrong one are judged as
they should be, no process, file, memory or container is left, and the host's canaries (a file, a
listening socket, a process) are untouched.
"""

from __future__ import annotations

import hashlib
import json
import os
import secrets as randomness
import socket
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from envs.extract import as_response
from envs.judge import Judge, JudgeConfig, Submission
from envs.problem import Problem, Test, Verdict
from envs.sandbox.base import Sandbox
from envs.sandbox.docker import unavailable
from envs.sandbox.embedded import EmbeddedSandbox, why_not
from envs.sandbox.engine import LABEL
from envs.sandbox.select import SandboxConfig, open_sandbox
from tests.envs.attacks import escapes, network, resources, secrets, tricks
from tests.envs.attacks.base import HELD, Attack, probe

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

SANDBOXES = [
    "embedded-namespaces",
    "embedded-landlock",
    pytest.param("docker", marks=pytest.mark.docker),
]
# What the weaker form is known to let through: it hides no names and attributes of files.
KNOWN_OPEN = {
    ("embedded-landlock", "secrets: list the host's folders"),
    ("embedded-landlock", "escapes: set-user-id programs"),
}
# Calls that change nothing, but tell what a hostile one would reach.
GATE = probe(
    """
attempt("everyone", os.kill, -1, 0)
attempt("canary", os.kill, world["pid"], 0)
attempt("read", open, world["file"])
attempt("write", open, os.__file__, "r+b")
attempt("chmod", os.chmod, os.__file__, 0o644)
missing = os.__file__ + world["nonce"]
for name, action in (("rename", lambda: os.rename(missing, missing)),
                     ("unlink", lambda: os.unlink(missing))):
    try:
        action()
    except OSError as error:
        if error.errno not in (errno.EPERM, errno.EACCES, errno.EROFS):
            leaks.append(name)
"""
)


@dataclass
class Canary:
    """What lies on the host for a program to find, and the proof that none did."""

    folder: Path
    nonce: str = field(default_factory=lambda: "spo" + randomness.token_hex(6))

    def __post_init__(self) -> None:
        self.file = self.folder / "canary.txt"
        self.file.write_text(f"SECRET of the host {self.nonce}")
        self.file.chmod(0o644)
        for folder in (self.folder, *self.folder.parents):
            if folder.stat().st_uid == os.getuid() and folder.is_relative_to("/tmp/pytest-of-root"):
                folder.chmod(0o755)  # only the sandbox may stand in the way
        self.state = self._state()
        self.listeners = [self._listen(socket.AF_INET, ("127.0.0.1", 0))]
        self.listeners.append(self._listen(socket.AF_UNIX, "\0" + self.nonce))
        self.port = self.listeners[0].getsockname()[1]
        datagrams = socket.socket(type=socket.SOCK_DGRAM)
        datagrams.bind(("127.0.0.1", self.port))
        datagrams.setblocking(False)
        self.datagrams = datagrams
        self.process = subprocess.Popen(["sleep", "600"])

    @staticmethod
    def _listen(family: int, address: object) -> socket.socket:
        listener = socket.socket(family)
        listener.bind(address)
        listener.listen()
        listener.setblocking(False)
        return listener

    def _state(self) -> tuple[object, ...]:
        status = self.file.stat()
        names = sorted(path.name for path in self.folder.iterdir())
        return names, self.file.read_text(), status.st_mode, status.st_uid, status.st_mtime_ns

    def world(self) -> dict[str, object]:
        """What a program is told."""
        host_files = {}
        for name in ("/etc/passwd", "/etc/shadow", "/etc/machine-id", "/etc/hosts", str(self.file)):
            if os.access(name, os.R_OK):
                host_files[name] = hashlib.sha256(Path(name).read_bytes()).hexdigest()
        return {
            "file": str(self.file),
            "port": self.port,
            "pid": self.process.pid,
            "nonce": self.nonce,
            "host_files": host_files,
            "home": str(Path.home()),
            "home_names": sorted(os.listdir(Path.home())),
        }

    def check(self) -> None:
        """Assert that all is as it was."""
        assert self._state() == self.state
        for listener in self.listeners:
            with pytest.raises(BlockingIOError):
                listener.accept()
        with pytest.raises(BlockingIOError):
            self.datagrams.recv(1)
        assert self.process.poll() is None
        state = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()[0]
        assert state == "S"

    def close(self) -> None:
        """Take everything away."""
        self.process.kill()
        self.process.wait()
        for one in (*self.listeners, self.datagrams):
            one.close()


@pytest.fixture(scope="module")
def canary(tmp_path_factory):
    canary = Canary(tmp_path_factory.mktemp("canary"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SPO_BENCH_CANARY", canary.nonce)
        yield canary
    canary.close()


@pytest.fixture(scope="module", params=SANDBOXES)
def sandbox(request, canary):
    with open_one(request.param) as sandbox:
        judge = Judge(sandbox, CONFIG)
        judge_innocents(judge)
        # Nothing hostile runs before this holds: the programs would otherwise hit the host.
        (gate,) = judge.judge([Submission(problem_for(GATE, canary), as_response(GATE.program))])
        assert gate.verdict is Verdict.ACCEPTED, f"this sandbox does not hold: {gate.detail}"
        yield sandbox


def open_one(name: str) -> Sandbox:
    """One worker of the sandbox called `name`; skips where the machine has none."""
    if name == "docker":
        if reason := unavailable():
            pytest.skip(f"attacks on the Docker sandbox left out: {reason}")
        return open_sandbox(SandboxConfig(kind="docker", workers=1))
    form = name.removeprefix("embedded-")
    if reason := why_not(form):
        pytest.skip(f"attacks on the embedded sandbox, form {form}, left out: {reason}")
    return EmbeddedSandbox(workers=1, form=form)


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
    loops = Verdict.TIME_LIMIT in attack.verdicts
    return Problem(
        name="attack",
        statement="",
        samples=(),
        tests=tuple(tests),
        checker="call" if attack.fn_name else "tokens",
        fn_name=attack.fn_name,
        time_limit_s=0.5 if loops else 3.0,
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


def descendants() -> dict[int, str]:
    """The processes below this one, those in inner PID namespaces too: PID → name."""
    children: dict[int, list[int]] = {}
    names = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            try:
                head, _, tail = (entry / "stat").read_text().rpartition(")")
            except OSError:
                continue
            names[int(entry.name)] = head.partition("(")[2]
            children.setdefault(int(tail.split()[1]), []).append(int(entry.name))
    found, waiting = {}, [os.getpid()]
    while waiting:
        for child in children.get(waiting.pop(), []):
            found[child] = names[child]
            waiting.append(child)
    return found


def resident_mb(processes: dict[int, str]) -> float:
    """What these processes hold in memory together."""
    pages = 0
    for pid in processes:
        try:
            pages += int(Path(f"/proc/{pid}/statm").read_text().split()[1])
        except OSError:
            continue
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


@dataclass(frozen=True)
class Traces:
    """What an attack could leave on the host."""

    processes: int
    named: list[int]  # processes that took the canary's name
    files: list[str]
    segments: int
    containers: tuple[int, int]

    @classmethod
    def now(cls, nonce: str, docker: bool) -> Traces:
        """Look at the whole host."""
        named = []
        for entry in Path("/proc").iterdir():
            if entry.name.isdecimal():
                try:
                    if (entry / "comm").read_text().strip() == nonce[:15]:
                        named.append(int(entry.name))
                except OSError:
                    continue
        folders = (
            "/",
            "/tmp",
            "/var/tmp",
            "/dev/shm",
            "/dev",
            "/run",
            "/etc",
            "/root",
            os.getcwd(),
        )
        files = [
            os.path.join(folder, name)
            for folder in folders
            if os.access(folder, os.R_OK)
            for name in os.listdir(folder)
            if nonce in name or name.startswith("core.") or name == "core"
        ]
        segments = len(Path("/proc/sysvipc/shm").read_text().splitlines())
        return cls(len(descendants()), named, files, segments, _containers() if docker else (0, 0))


def _containers() -> tuple[int, int]:
    """(the containers that this process owns, the processes in them)."""
    import docker

    client = docker.from_env()
    try:
        ours = client.api.containers(all=True, filters={"label": f"{LABEL}.pid={os.getpid()}"})
        return len(ours), sum(len(client.api.top(one["Id"])["Processes"]) for one in ours)
    except docker.errors.APIError:  # one has just ended
        return 0, 0
    finally:
        client.close()


@pytest.mark.parametrize("name", ATTACKS)
def test_attack(name, sandbox, canary, request):
    attack = ATTACKS[name]
    expected = attack.verdicts
    if (request.node.callspec.params["sandbox"], name) in KNOWN_OPEN:
        expected = {Verdict.WRONG_ANSWER}
    docker = sandbox.name == "docker"
    judge = Judge(sandbox, CONFIG)
    before, held_before = Traces.now(canary.nonce, docker), resident_mb(descendants())
    problem = problem_for(attack, canary)
    (judgement,) = judge.judge([Submission(problem, as_response(attack.program))])
    judge_innocents(judge)
    deadline = time.monotonic() + 5
    while (after := Traces.now(canary.nonce, docker)) != before and time.monotonic() < deadline:
        time.sleep(0.02)
    assert judgement.verdict in expected, judgement.detail
    if attack.hunts:
        assert judgement.passed == attack.tests - 1, judgement.detail
        assert judgement.detail.endswith("found 'HELD'")
    assert after == before
    assert resident_mb(descendants()) < held_before + 64
    canary.check()


def test_there_are_enough_attacks():
    assert len(ATTACKS) >= 40


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
def test_an_attack_succeeds_where_nothing_holds_it(name, tmp_path, monkeypatch):
    canary = Canary(tmp_path)
    monkeypatch.setenv("SPO_BENCH_CANARY", canary.nonce)
    try:
        assert unconfined(ATTACKS[name].program, canary).startswith("BROKEN:")
    finally:
        canary.close()


@pytest.mark.parametrize(
    "where", ["among all objects", "in the frames below", "in this process's memory"]
)
def test_a_hunt_finds_a_secret_that_is_there(where, tmp_path):
    canary = Canary(tmp_path)
    secret = fresh_secret()
    planted = f"planted = ['SEC', {secret[3:]!r}]\nplanted = [''.join(planted)] * 3\n"
    try:
        found = unconfined(planted + ATTACKS[f"secrets: other tests {where}"].program, canary)
        assert secret in found
    finally:
        canary.close()


def unconfined(program: str, canary: Canary) -> str:
    """What a program prints when it runs as an ordinary process of this machine."""
    done = subprocess.run(
        [sys.executable, "-c", program],
        input=problem_for(Attack(program), canary).tests[0].input,
        capture_output=True,
        text=True,
        timeout=30,
        cwd=canary.folder,
    )
    assert not done.stderr
    return done.stdout
