"""Small whole runs under any runtime, and their numbers side by side."""

import os
import subprocess
import sys
import time
from importlib.util import find_spec
from pathlib import Path

import pandas as pd
import pytest

from tests.command_line import merged

ROOT = Path(__file__).resolve().parents[3]
LIMIT_S = 600  # of any wait, on a machine however busy
SMALL = [
    *("steps=5", "eval.every=0", "eval.samples=2", "eval.k=[1]", "eval.kl_samples=1"),
    *("train.prompts=3", "train.group_size=4", "train.checkpoint_every=1"),
    *("algo.learning_rate=1e-3", "engine.logprob_check_every=2", "engine.logprob_check_samples=2"),
    *("sandbox=embedded", "sandbox.workers=1", "task.train_problems=6", "task.choose_problems=2"),
    *("task.test_problems=2", "task.tune_problems=2"),
]
needs_ray = pytest.mark.skipif(find_spec("ray") is None, reason="needs pip install -e '.[ray]'")


def begin(output_dir, *overrides, ranks=0, **streams):
    """Start a run; `ranks`: under torchrun."""
    command = [sys.executable]
    if ranks:
        command += ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={ranks}"]
    given = merged(*SMALL, *overrides, f"output_dir={output_dir}")
    env = os.environ | {"OMP_NUM_THREADS": "1"}
    return subprocess.Popen([*command, "run.py", *given], cwd=ROOT, env=env, **streams)


def finished(output_dir, *overrides, ranks=0):
    """Return the folder of a whole run."""
    assert begin(output_dir, *overrides, ranks=ranks).wait() == 0
    (folder,) = output_dir.glob("mini/*")
    return folder


def resumed(folder, *overrides):
    """Resume a run in one process."""
    command = [sys.executable, "run.py", f"resume={folder}", "runtime=sync", *overrides]
    assert subprocess.run(command, cwd=ROOT, check=False).returncode == 0
    return folder


def wait_for(condition):
    until = time.monotonic() + LIMIT_S
    while not (found := condition()):
        assert time.monotonic() < until
        time.sleep(0.2)
    return found


def checkpoint(output_dir):
    """The run folder, once it holds a checkpoint of step 2."""
    written = list(output_dir.glob("mini/*/checkpoints/step-2/state.json"))
    return written[0].parents[2] if written else None


def assert_equal(run, other, exact=True):
    """Compare metrics and the base's evaluation, to the bit or, across ranks, to rounding."""
    for table in ("metrics", "evals"):
        frames = [pd.read_parquet(folder / f"{table}.parquet") for folder in (run, other)]
        if table == "evals" and not exact:
            frames = [frame[frame["step"] == 0] for frame in frames]
        skipped = ("time/", "memory/", *(() if exact else ("mismatch/",)))
        kept = [c for c in frames[0] if not c.startswith(skipped) and c != "cpu_s"]
        one, two = (frame[kept].reset_index(drop=True) for frame in frames)
        pd.testing.assert_frame_equal(one, two, check_exact=exact, rtol=1e-3, atol=1e-5)
    if exact:
        weights = [next((f / "checkpoints" / "final").glob("*.safetensors")) for f in (run, other)]
        assert weights[0].read_bytes() == weights[1].read_bytes()
