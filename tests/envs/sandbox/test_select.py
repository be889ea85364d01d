"""The choice of the sandbox, and the message where none is available."""

import platform
import subprocess
import sys
from pathlib import Path

import pytest

from envs.command_line import parse_values
from envs.sandbox import SandboxConfig, embedded
from envs.sandbox.base import SandboxError
from envs.sandbox.embedded import EmbeddedSandbox, form_unavailable, strongest_form

ROOT = Path(__file__).parents[3]

# A user namespace of its own, in which no further ones are allowed: a machine that refuses them.
REFUSING = ("unshare", "--user", "--map-root-user", "sh", "-c")
REFUSE = 'echo 0 > /proc/sys/user/max_user_namespaces && exec "$0" -c "$1"'
REPORT = """
from envs.sandbox.base import Job
from envs.sandbox.embedded import EmbeddedSandbox, form_unavailable
print("user namespaces are refused" in (form_unavailable("namespaces") or ""))
reason = form_unavailable("landlock")
if reason:
    print(reason)
else:
    with EmbeddedSandbox(1) as sandbox:
        program = "print(int(input()) * 2)\\nopen('/etc/hostname')"
        [(_, [execution])] = sandbox.run([Job(program, ("21",))], lambda *_: True)
        print(sandbox.form, sandbox.strength.split(",")[0], execution.outcome, execution.stdout)
        print(execution.stderr.splitlines()[-1])
"""


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"kind": "chroot"}, "sandbox.kind='chroot'; it should be 'auto', 'docker' or 'embedded'"),
        ({"workers": -1}, "sandbox.workers=-1; it should be greater than or equal to 0"),
    ],
)
def test_a_wrong_configuration_names_the_key(config, message):
    with pytest.raises(ValueError, match=message):
        parse_values(SandboxConfig, config, "sandbox")


def test_too_few_open_files_are_an_error_that_says_how_many_are_needed():
    code = "from envs.sandbox.embedded import EmbeddedSandbox\nEmbeddedSandbox(1)"
    command = ["sh", "-c", 'ulimit -n 255; exec "$0" -c "$1"', sys.executable, code]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=600)
    assert "need 256 open files and this shell allows 255" in done.stderr


def test_where_user_namespaces_are_refused_the_weaker_form_is_taken_and_named():
    try:
        subprocess.run([*REFUSING, "true"], check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("this machine has no user namespaces to refuse them in")
    command = [*REFUSING, REFUSE, sys.executable, REPORT]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=600)
    lines = done.stdout.splitlines()
    assert lines[0] == "True", done.stderr
    if "Landlock" in lines[1]:
        pytest.skip(f"this machine has no Landlock: {lines[1]}")
    assert lines[1].startswith("landlock WEAKER"), lines
    assert lines[1].endswith("RUNTIME_ERROR b'42\\n'")
    assert "Permission denied" in lines[2]


def test_where_nothing_holds_it_refuses_and_names_the_ways_out(monkeypatch):
    monkeypatch.setattr(platform, "machine", lambda: "pdp11")
    form_unavailable.cache_clear()
    for accept in (False, True):  # without a filter of system calls, not even at the user's risk
        with pytest.raises(SandboxError) as caught:
            strongest_form(accept)
        assert "no system-call filter for pdp11" in str(caught.value)
        assert "sandbox.i_accept_no_isolation=true" in str(caught.value)
    form_unavailable.cache_clear()


def test_at_the_users_risk_programs_still_cannot_write_fork_or_signal():
    from envs.sandbox.base import Job, Outcome

    reason = form_unavailable("none")
    if reason:
        pytest.skip(reason)
    with EmbeddedSandbox(1, form="none") as sandbox:
        assert sandbox.strength.startswith("NONE")
        programs = (
            "print(int(input()) * 2)",
            "open('should-not-exist', 'w')",
            "import os\nos.fork()",
            "import os\nos.kill(os.getpid(), 0)",
            "import socket\nsocket.socket()",
        )
        results = dict(sandbox.run([Job(program, ("2",)) for program in programs], lambda *_: True))
    assert results[0][0].stdout == b"4\n"
    assert all(results[i][0].outcome is Outcome.RUNTIME_ERROR for i in range(1, len(programs)))


def test_a_worker_that_is_late_makes_no_weaker_form(monkeypatch):
    if form_unavailable("namespaces"):
        pytest.skip("this machine has no user namespaces")
    monkeypatch.setattr(embedded, "TRIAL_S", 0.0)
    form_unavailable.cache_clear()
    with pytest.raises(SandboxError, match="sandbox form namespaces: no worker started"):
        strongest_form(False)
    form_unavailable.cache_clear()
