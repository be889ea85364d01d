"""A sweep whose jobs run several at once: its table, its failures, and its end by Ctrl-C."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time

import pandas
import pytest

from tests.command_line import ROOT, SMALL, call

pytest.importorskip("hydra_plugins.hydra_joblib_launcher")
TOGETHER = ["-m", "hydra/launcher=joblib", "hydra.launcher.n_jobs=2", *SMALL]


@pytest.mark.slow
def test_jobs_run_at_once_and_end_in_one_table(tmp_path):
    broken = tmp_path / "broken"  # no look before the start finds out
    shutil.copytree(ROOT / "assets" / "nano", broken)
    weights = broken / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:1000])
    given = [*TOGETHER, "algo=grpo", "seed=0,1", f"model.path=assets/nano,{broken}"]
    done = call(*given, f"output_dir={tmp_path}")
    assert done.returncode == 1, done.stderr
    rows = [line.split("│") for line in done.stdout.splitlines() if line.startswith("│")]
    assert [row[2].strip() for row in rows] == ["finished", "failed", "finished", "failed"]
    assert done.stdout.count("failed: ") == 2
    assert "broken: cannot be loaded" in done.stdout
    for line in done.stderr.splitlines():
        assert line.startswith(("job ", "checking jobs: ", "WARNING: jobs=2 ")), line
    assert "job 1/4: sandbox: embedded" in done.stderr
    again = call(*given[:-1], f"output_dir={tmp_path}")
    assert again.returncode == 0, again.stderr
    assert again.stderr.count("not run again") == 2  # as if they had run one after the other


@pytest.mark.slow
def test_ctrl_c_ends_all_of_them_with_a_checkpoint(tmp_path):
    given = [*TOGETHER, "algo=grpo", "seed=0,1,2", "steps=1000", f"output_dir={tmp_path}"]
    sweep = subprocess.Popen(
        [sys.executable, str(ROOT / "run.py"), *given],
        cwd=ROOT,
        env={**os.environ, "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        start_new_session=True,
    )
    try:
        deadline = time.monotonic() + 300
        while not all_begun(found := list(tmp_path.glob("mini/*/metrics.jsonl")), 2):
            assert sweep.poll() is None and time.monotonic() < deadline
            time.sleep(0.1)
        os.killpg(sweep.pid, signal.SIGINT)  # as a terminal does
        out, _ = sweep.communicate(timeout=600)
    finally:
        sweep.kill()
    assert sweep.returncode == 130
    assert len(list(tmp_path.glob("mini/*"))) == len(found) == 2  # the third was not begun
    assert out.count("│ interrupted ") == 2 and "not run" in out
    assert out.splitlines()[-1] == "interrupted; the same command resumes"
    for journal in found:
        info = json.loads((journal.parent / "run.json").read_text())
        assert info["status"] == "interrupted"
        steps = len(pandas.read_parquet(journal.parent / "metrics.parquet"))
        assert info["checkpoints"]["interrupted"] - steps in (0, 1)  # trained, its row not written


def all_begun(journals, count):
    return len(journals) == count and all(journal.stat().st_size for journal in journals)
