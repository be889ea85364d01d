"""The commands of studies as processes of their own, to be stopped and killed."""

import os
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]


def start(module, folder, *arguments):
    """The study `s.yaml` of that folder, whose runs go to `out` in it."""
    given = [f"study={folder}/s.yaml", f"output_dir={folder}/out", "jobs=2", *arguments]
    return subprocess.Popen(
        [sys.executable, "-m", f"experiments.studies.{module}", *given],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env=os.environ | {"OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"},
    )


def wait_for(happened, process):
    end = time.monotonic() + 900
    while not happened():
        assert process.poll() is None, process.stdout.read()
        assert time.monotonic() < end
        time.sleep(0.05)
