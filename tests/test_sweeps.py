"""Whole sweeps: kept, failed, interrupted and killed jobs, one after the other and at once."""

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import asdict

import pandas
import pytest
from omegaconf import OmegaConf

from experiments.config.preflight import resolve_defaults
from tests.command_line import ROOT, SMALL, call, merged
from tests.experiments.compose import config

STEPS = 3


def infos(place):
    return [json.loads(file.read_text()) for file in sorted(place.glob("mini/*/run.json"))]


def rows_of(out):
    """The cells of the table at the end."""
    lines = [line for line in out.splitlines() if line.startswith("│")]
    return [[cell.strip() for cell in line.strip("│").split("│")] for line in lines]


def start(place, *given):
    return subprocess.Popen(
        [sys.executable, "run.py", "-m", *merged(*SMALL, *given), f"output_dir={place}"],
        cwd=ROOT,
        env={**os.environ, "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        start_new_session=True,
    )


def wait_for(found, sweep):
    deadline = time.monotonic() + 600
    while not found():
        assert sweep.poll() is None and time.monotonic() < deadline
        time.sleep(0.05)


def test_a_failed_job_stops_no_other_and_the_same_command_keeps_what_is_done(
    tmp_path, call_here, monkeypatch
):
    monkeypatch.setattr("experiments.trainer._opened", set())
    broken = tmp_path / "broken"  # no look before the start finds out
    shutil.copytree(ROOT / "assets" / "nano", broken)
    weights = broken / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:1000])
    given = ["-m", *SMALL, "algo=grpo", f"output_dir={tmp_path}"]
    done = call_here(*given, f"model.path={broken},assets/nano")
    assert done.returncode == 1
    assert [row[1] for row in rows_of(done.stdout)] == ["failed", "finished"]
    assert "broken: cannot be loaded" in done.stdout and "make report RUNS=" in done.stdout
    given = merged(*given, f"output_dir={tmp_path}/.")  # the same folder, written otherwise
    again = call_here(*given, "seed=0,1", "model.path=assets/nano")
    assert again.returncode == 0
    assert [row[1] for row in rows_of(again.stdout)] == ["finished before", "finished"]
    for line in ("on cpu: ", "problems: ", "sandbox: ", "step 1: log-probs"):  # once in a sweep
        assert f"{done.stderr}{again.stderr}".count(f"\n{line}") == 1
    anew = call_here(*given, "model.path=assets/nano", "again=always")
    assert [row[1] for row in rows_of(anew.stdout)] == ["finished"]
    finished = [info["seed"] for info in infos(tmp_path) if info["status"] == "finished"]
    assert sorted(finished) == [0, 0, 1]


def test_a_plan_says_before_the_first_job_what_all_will_take(tmp_path, call_here):
    given = [*SMALL, f"output_dir={tmp_path}", "algo=grpo", "model.device=cpu", "steps=3"]
    (folder := tmp_path / "mini" / "done").mkdir(parents=True)
    made = asdict(resolve_defaults(config(*given), "cpu"))
    (folder / "config.yaml").write_text(OmegaConf.to_yaml(made))
    (folder / "run.json").write_text(json.dumps({"status": "finished", "error": None}))
    times = {"time/total_s": [50.0, 90.0, 130.0], "time/evaluate_s": [10.0] * 3}
    pandas.DataFrame(times).to_parquet(folder / "metrics.parquet")
    os.truncate(os.open(folder / "weights", os.O_CREAT | os.O_RDWR), 5_000_000)
    plan = ["-m", "plan=true", "jobs=2", *merged(*given, "steps=6"), "seed=0,1"]
    said = call_here(*plan).stdout  # each 6 x 40 s + 2 x 10 s
    assert "2 of 2 jobs would run, 2 at once" in said and "about 4.3 min and 10 MB" in said
    assert (
        "2 of them: time and disk are not known"
        in call_here(*merged(*plan, "task.choose_problems=3")).stdout
    )
    assert os.listdir(tmp_path / "mini") == ["done"]


@pytest.mark.slow
def test_ctrl_c_ends_jobs_at_once_with_a_checkpoint(tmp_path):
    sweep = start(tmp_path, "jobs=2", "algo=grpo", "seed=0,1,2", "steps=1000")
    try:
        wait_for(
            lambda: (
                len([f for f in tmp_path.glob("mini/*/metrics.jsonl") if f.stat().st_size]) == 2
            ),
            sweep,
        )
        os.killpg(sweep.pid, signal.SIGINT)  # as a terminal does
        out, _ = sweep.communicate(timeout=600)
    finally:
        sweep.kill()
    assert sweep.returncode == 130
    assert [row[1] for row in rows_of(out)] == ["interrupted", "interrupted", "not run"]
    assert out.splitlines()[-1] == "interrupted; the same command resumes"
    for info, folder in zip(infos(tmp_path), sorted(tmp_path.glob("mini/*-s*")), strict=True):
        steps = len(pandas.read_parquet(folder / "metrics.parquet"))
        assert info["checkpoints"]["interrupted"] - steps in (0, 1)  # trained, its row not written


@pytest.mark.slow
@pytest.mark.parametrize("at_once", [[], ["jobs=2"]], ids=["alone", "at once"])
def test_killed_twice_and_started_twice_more_all_six_runs_are_whole(at_once, tmp_path):
    given = [*at_once, "algo=grpo,spo", "seed=0,1,2", f"steps={STEPS}"]

    def trained():
        ended = sum(info["status"] == "finished" for info in infos(tmp_path))
        journals = tmp_path.glob("mini/*/metrics.jsonl")
        return STEPS * ended + sum(journal.read_text().count("\n") for journal in journals)

    for rows in sorted(random.Random(str(at_once)).sample(range(1, 6 * STEPS), 2)):
        sweep = start(tmp_path, *given)
        wait_for(lambda rows=rows: trained() >= rows, sweep)
        os.kill(sweep.pid, signal.SIGKILL)
        sweep.communicate()
    last = start(tmp_path, *given)
    out, _ = last.communicate(timeout=600)
    assert last.returncode == 0, out
    assert [info["status"] for info in infos(tmp_path)] == ["finished"] * 6
    for folder in tmp_path.glob("mini/*-s*"):
        metrics = pandas.read_parquet(folder / "metrics.parquet")
        assert metrics["step"].tolist() == list(range(1, STEPS + 1))
        assert metrics["budget/optimiser_steps"].tolist() == list(range(1, STEPS + 1))


@pytest.mark.slow
def test_jobs_of_submitit_end_in_one_table_and_are_kept(tmp_path):
    pytest.importorskip("hydra_plugins.hydra_submitit_launcher")
    given = ["-m", "hydra/launcher=submitit_local", *SMALL, "algo=grpo", f"output_dir={tmp_path}"]
    done = call(*given, "seed=0,1")
    assert done.returncode == 0, done.stderr
    again = call(*given, "seed=0,1,2")
    assert again.returncode == 0, again.stderr
    assert sorted(info["seed"] for info in infos(tmp_path)) == [0, 1, 2]
