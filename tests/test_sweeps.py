"""Sweeps (`run.py -m`): one table at the end, a failed job among others, the same command again."""

import json
import shutil
import time
from types import SimpleNamespace

import pandas
import pytest

from experiments.sweep import (
    STAMP,
    begins_anew,
    changes_line,
    kinds_changed,
    print_summary,
    provenance,
    record_outcome,
    time_left,
)
from tests.command_line import SMALL


def test_a_sweep_ends_with_one_table_and_writes_nowhere_else(tmp_path, call_here, monkeypatch):
    monkeypatch.chdir(tmp_path)
    given = [*SMALL, "algo.learning_rate=1e-4", f"output_dir={tmp_path}/out"]
    done = call_here("-m", "algo=grpo,spo", *given)
    assert done.returncode == 0, done.stderr
    folders = sorted((tmp_path / "out" / "mini").iterdir())
    assert [folder.name[:4] for folder in folders] == ["grpo", "spo-"]
    assert [p.name for p in tmp_path.iterdir()] == ["out"]
    lines = done.stdout.splitlines()
    assert [line.split("│")[1].strip() for line in lines[3:5]] == ["algo=grpo", "algo=spo"]
    assert "pass@1" in lines[1]
    assert "pass@2" in lines[1]
    assert all(str(folder) in line for folder, line in zip(folders, lines[3:5], strict=True))
    assert lines[-1] == f"report: make report RUNS={tmp_path}/out/mini"
    assert done.stderr.count("sandbox: embedded") == 2  # once a job


def test_the_same_sweep_again_does_only_what_is_left(tmp_path, call_here):
    given = ["-m", "algo=grpo", *SMALL, "steps=2", "train.checkpoint_every=1"]
    given += [f"output_dir={tmp_path}"]
    assert call_here(*given, "seed=0,1").returncode == 0
    first, second = sorted((tmp_path / "mini").iterdir())
    kept = (first / "run.json").read_bytes()
    info = json.loads((second / "run.json").read_text())
    (second / "run.json").write_text(json.dumps(info | {"status": "running"}))  # it was killed
    shutil.rmtree(second / "checkpoints" / "final")
    again = call_here(*given, "seed=0,1,2")
    assert "looking for earlier runs of these jobs …" in again.stderr.splitlines()
    assert again.returncode == 0, again.stderr
    assert f"not run again: {first}" in again.stderr
    assert f"resuming after step 1 in {second}" in again.stderr
    assert (first / "run.json").read_bytes() == kept
    folders = sorted((tmp_path / "mini").iterdir())
    assert [folder.name[:8] for folder in folders] == ["grpo-s0-", "grpo-s1-", "grpo-s2-"]
    infos = [json.loads((folder / "run.json").read_text()) for folder in folders]
    assert [info["status"] for info in infos] == ["finished"] * 3
    assert [[at["step"] for at in info["resumed"]] for info in infos] == [[], [1], []]
    for folder in folders:
        assert list(pandas.read_parquet(folder / "metrics.parquet")["step"]) == [1, 2]
    rows = [line.split("│") for line in again.stdout.splitlines() if line.startswith("│")]
    assert all(float(row[3]) >= 0 for row in rows)  # pass@1 of all three

    digests = json.loads((first / "digests.json").read_text())
    digests["code"]["algorithms/grpo.py"] = "of other code"
    (first / "digests.json").write_text(json.dumps(digests))
    anew = call_here(*given, "seed=0,1", "again=changed")
    assert anew.returncode == 0, anew.stderr
    line = "1 finished run is of other code: algorithms/grpo.py; they begin anew, and `make "
    assert f"\n{line}" in anew.stderr and anew.stderr.count("not run again: ") == 1
    assert len(folders) + 1 == len(list((tmp_path / "mini").iterdir()))
    assert (first / "run.json").read_bytes() == kept

    done = call_here(f"resume={first}")
    assert (done.returncode, done.stdout.split(",")[0]) == (0, "already finished")
    fewer = call_here(f"resume={first}", "steps=0")
    assert fewer.stdout == done.stdout
    done = call_here(f"resume={first}", "seed=5")
    assert done.returncode == 2
    assert done.stderr.startswith(f"error: resume={first}: seed=5 (was 0) would be another run")


def test_a_job_that_diverges_does_not_end_the_sweep(tmp_path, call_here):
    rates = "algo.learning_rate=1e20,1e-4"
    given = [*SMALL, "steps=3", "train.warmup_steps=0", f"output_dir={tmp_path}/out"]
    done = call_here("-m", "algo=spo", "algo.q0_samples=2", rates, *given)
    assert done.returncode == 1
    assert "Traceback" not in done.stderr
    rows = [line.split("│") for line in done.stdout.splitlines() if line.startswith("│")]
    assert [row[2].strip() for row in rows] == ["failed", "finished"]
    (failed,) = [line for line in done.stdout.splitlines() if line.startswith("failed:")]
    assert "algo.learning_rate=1e+20: " in failed
    assert "diverged" in failed


@pytest.fixture
def runs(tmp_path, monkeypatch):
    """A function from each run's (status, changes) to runs for `changes_line`."""

    def made(*described):
        for number, (status, _) in enumerate(described):
            folder = tmp_path / str(number)
            folder.mkdir()
            (folder / "run.json").write_text(json.dumps({"status": status}))
            (folder / "config.yaml").write_text("steps: 1")
        monkeypatch.setattr(
            "experiments.run_dir.provenance.changes", lambda at, _: described[int(at.name)][1]
        )
        return [
            (tmp_path / str(number), SimpleNamespace(steps=1)) for number in range(len(described))
        ]

    return made


def test_one_line_says_what_has_changed_since_runs_were_made(runs):
    spo, files = {"code": ["algorithms/spo.py"]}, [f"f{i}" for i in range(6)]
    torch = {"packages": ["torch 1 → 2"], "data": files}
    compares = "`make compare A=OLD B=NEW` compares an algorithm's old runs with its new ones"
    found = runs(("finished", spo), ("finished", spo | torch), ("failed", spo), ("finished", {}))
    assert changes_line(found, "never") == (
        "2 finished runs are of other code: algorithms/spo.py; 1 finished run is of other data: "
        "f0, f1, f2, f3, 2 more; 1 finished run is of other packages: torch 1 → 2; 1 stopped run "
        "is of other code: algorithms/spo.py; again=changed runs them again (without it stopped "
        f"ones go on), and {compares}"
    )
    end = f"algorithms/spo.py; they begin anew, and {compares}"
    assert changes_line(found[:1], "changed").endswith(end)
    assert changes_line(found[3:], "never") is None


@pytest.mark.parametrize(
    ("changed", "end"),
    [
        ({}, "commit abc; again=always runs it again"),
        (
            {"code": ["x"], "packages": ["torch"]},
            "commit abc, of other code and other packages; again=changed runs it again",
        ),
    ],
)
def test_the_line_of_a_kept_run_says_what_has_changed(changed, end, runs):
    ((folder, config),) = runs(("finished", changed))
    (folder / "run.json").write_text('{"ended": "2026-01-01", "commit": "abc"}')
    line = provenance(folder, kinds_changed(folder, config))
    assert line == f"{folder}, ended 2026-01-01, {end}"


def test_runs_without_a_record_of_their_code_are_counted(runs):
    line = changes_line(runs(("finished", {"unrecorded": []})), "never")
    assert line.startswith("1 finished run is of code that was not recorded; again=")


@pytest.mark.parametrize(
    ("again", "changed", "anew"),
    [
        *(("never", True, False), ("never", False, False), ("changed", True, True)),
        *(("changed", False, False), ("always", False, True)),
    ],
)
def test_which_runs_begin_anew(again, changed, anew, runs):
    ((folder, config),) = runs(("finished", {"code": ["x"]} if changed else {}))
    assert begins_anew(folder, config, again) == anew


def test_the_time_left_is_that_of_the_jobs_that_ran_to_their_end(tmp_path):
    began = time.localtime(time.time() - 120)
    folder = tmp_path / f"{time.strftime(STAMP, began)}-1"
    folder.mkdir()
    assert time_left(folder, 9) == ""  # nothing is known yet
    parts = {"folder": None, "error": None, "pass_at": {}}
    finished = SimpleNamespace(status="finished", **parts)
    record_outcome(folder, 0, SimpleNamespace(status="failed", **parts))
    record_outcome(folder, 1, finished, kept=True)
    assert time_left(folder, 9) == "; 2 of 9 jobs"  # neither took a run's time
    record_outcome(folder, 2, finished)
    record_outcome(folder, 3, finished)
    assert time_left(folder, 9) == "; 4 of 9 jobs, about 5 min left"  # 5 jobs, 60 s each
    assert time_left(folder, 4) == ""


def test_the_table_marks_other_code_and_its_report_takes_no_later_runs(tmp_path, capsys):
    results, runs = tmp_path / "sweep", [str(tmp_path / "mini" / name) for name in ("a", "b")]
    results.mkdir()
    for number, (run, changed) in enumerate(zip(runs, ("", "of other code"), strict=True)):
        ended = SimpleNamespace(status="finished", folder=run, error=None, pass_at={})
        record_outcome(results, number, ended, kept=True, changed=changed)
    jobs = [["seed=0"], ["seed=1"]]
    assert print_summary(results, jobs) == 0
    lines = capsys.readouterr().out.splitlines()
    states = [line.split("│")[2].strip() for line in lines if line.startswith("│")]
    assert states == ["finished", "finished, of other code"]
    assert lines[-1] == f"report: make report RUNS={tmp_path}/mini"
    assert print_summary(results, jobs, later=True) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[-2] == f"report of these runs: make report RUNS={runs[0]},{runs[1]}"
    assert lines[-1].startswith(f"not make report RUNS={tmp_path}/mini: later runs ")
