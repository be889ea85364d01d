"""`run.py` as a process, and its main() in this one; the overrides of a run that takes a second."""

import gc
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace

import run

ROOT = Path(__file__).resolve().parents[1]
SMALL = [
    *("steps=1", "eval.every=0", "eval.samples=2", "eval.k=[1,2]", "train.prompts=2"),
    *("train.group_size=2", "task.train_problems=4", "task.tune_problems=2"),
    *("task.choose_problems=2", "task.test_problems=2", "sandbox=embedded"),
]


def merged(*words):
    """The last word of each key."""
    return [*{word.partition("=")[0]: word for word in words}.values()]


def call(*arguments, cwd=ROOT):
    """`python run.py` with these arguments, which takes four seconds to start a run."""
    return subprocess.run(
        [sys.executable, str(ROOT / "run.py"), *arguments],
        cwd=cwd,
        capture_output=True,
        text=True,
        timeout=600,
        env={**os.environ, "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"},
    )


@contextmanager
def process_state_kept() -> Iterator[None]:
    """main() is made for a process of its own: undo what it does to collection and signals.

    What it freezes stays frozen, as tests/conftest.py has it; so no garbage may be among it.
    """
    gc.collect()
    handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
        gc.enable()


def main_here(monkeypatch, capfd, arguments) -> SimpleNamespace:
    """Exit status and output of main() with these arguments, like those of `call`."""
    monkeypatch.setattr(sys, "argv", [str(ROOT / "run.py"), *arguments])
    capfd.readouterr()
    status = 0
    with process_state_kept():
        try:
            run.main()
        except SystemExit as end:
            status = end.code or 0
    out, err = capfd.readouterr()
    return SimpleNamespace(returncode=status, stdout=out, stderr=err)
