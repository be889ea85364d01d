"""The startup status of a test process is complete whenever the server looks."""

import subprocess
import sys
from pathlib import Path

from envs.sandbox.inside.test_process import StartupStatus

ROOT = Path(__file__).resolve().parents[4]

WATCH = """
import os, time
from envs.sandbox.inside.test_process import StartupStatus

startup = StartupStatus()
for _ in range(60):
    startup.reset()
    assert startup.begun is None
    begin = time.monotonic()
    pid = os.fork()
    if pid == 0:
        startup.begin()
        os._exit(0)
    while (begun := startup.begun) is None:
        pass
    os.waitpid(pid, 0)
    used, since = begun
    assert 0 < used < 60
    assert begin <= since <= time.monotonic()
    assert startup.refused is None
print("whole")
"""


def test_whoever_looks_sees_all_or_nothing():
    """In a process of its own, which is small: this one's forks take long."""
    done = subprocess.run([sys.executable, "-c", WATCH], cwd=ROOT, capture_output=True, text=True)
    assert done.stdout == "whole\n", done.stderr


def test_a_refusal_names_the_outcome():
    startup = StartupStatus()
    for outcome in ("SYNTAX_ERROR", "MEMORY_LIMIT"):
        startup.reset()
        startup.refuse(outcome)
        assert (startup.refused, startup.begun) == (outcome, None)
