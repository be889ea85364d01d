"""Runs as processes of their own, each on a core's worth of threads, and their clean end.

A process is `python run.py -m` with one job: as in any sweep, a run that is finished is left as it
is and one that was stopped goes on. It dies with its runner, whatever ends that, with a checkpoint.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from experiments.run_dir.interrupts import terminate_with_parent

ROOT = Path(__file__).resolve().parents[2]


def start(overrides: Sequence[str], log: Path) -> subprocess.Popen:
    """One run in a session of its own, so that Ctrl-C reaches it through its runner alone."""
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("ab") as out:
        return subprocess.Popen(
            [sys.executable, str(ROOT / "run.py"), "-m", *overrides],
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=subprocess.STDOUT,
            env=os.environ | {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"},
            start_new_session=True,
            preexec_fn=terminate_with_parent,
        )


def end(running: Sequence[subprocess.Popen]) -> None:
    """Ask each to end with a checkpoint, and wait; a second Ctrl-C asks again, a third kills."""
    for sent in (signal.SIGTERM, signal.SIGTERM, signal.SIGKILL):
        for process in running:
            if process.poll() is None:
                process.send_signal(sent)
        try:
            while any(process.poll() is None for process in running):
                time.sleep(0.1)
            return
        except KeyboardInterrupt:
            continue


def why(process: subprocess.Popen, log: Path) -> str:
    """Why a run that has ended did not finish, where its folder does not say."""
    if process.returncode < 0:
        return f"ended by {signal.Signals(-process.returncode).name}"
    return last_words(log)


def last_words(log: Path) -> str:
    """The line in which a run said why it failed."""
    lines = [line.strip() for line in log.read_text(errors="replace").splitlines()]
    told = [line for line in lines if line.startswith(("error: ", "failed: "))]
    return (told or lines or ["it said nothing"])[-1].removeprefix("error: ")
