"""Small whole runs, under torchrun or alone, and their metrics side by side."""

import os
import subprocess
import sys
import time
from pathlib import Path

import pandas as pd

ROOT = Path(__file__).resolve().parents[3]
SMALL = [
    *("eval.every=0", "eval.samples=2", "eval.k=[1]", "eval.kl_samples=1"),
    *("train.prompts=4", "train.group_size=4", "train.checkpoint_every=2"),
    *("engine.logprob_check_every=3", "engine.logprob_check_samples=3"),
    *("sandbox=embedded", "sandbox.workers=1"),
    *(
        "task.train_problems=6",
        "task.choose_problems=3",
        "task.test_problems=3",
        "task.tune_problems=2",
    ),
    "algo.learning_rate=1e-3",
]


def begin(ranks, *overrides, runtime="torchrun", **streams):
    started = [sys.executable]
    if ranks:
        started += ["-m", "torch.distributed.run", "--nproc-per-node", str(ranks)]
        started += ["--rdzv-backend", "c10d", "--rdzv-endpoint", "127.0.0.1:0"]
        overrides = (*overrides, f"runtime={runtime}")
    env = os.environ | {"OMP_NUM_THREADS": "1"}
    return subprocess.Popen([*started, "run.py", *overrides], cwd=ROOT, env=env, **streams)


def finished(ranks, output_dir, *overrides, **runtime):
    assert begin(ranks, *SMALL, f"output_dir={output_dir}", *overrides, **runtime).wait() == 0
    (folder,) = output_dir.glob("mini/*")  # made once
    return folder


def metrics(folder):
    return pd.read_parquet(folder / "metrics.parquet")


def assert_alike(run, other, rtol):
    one, two = metrics(run), metrics(other)
    assert list(one) == list(two)
    for name in one.columns:
        if name.startswith(("time/", "memory/", "mismatch/")):
            continue
        exact = name.startswith("budget/") or name in ("step", "reward_mean", "sample_lag_max")
        pd.testing.assert_series_equal(one[name], two[name], rtol=0 if exact else rtol, atol=1e-5)


def wait_for(condition, process):
    while not condition():
        assert process.poll() is None, "the run ended too soon"
        time.sleep(0.2)


def environment(pid):
    try:
        return "\0" + Path(f"/proc/{pid}/environ").read_text()
    except OSError:
        return ""
