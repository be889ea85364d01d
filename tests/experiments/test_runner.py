"""The runner's processes, with a stand-in for run.py that ends as its seed says."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from experiments import runner
from experiments.runner import End, Job, Runner

RUN = """
import json, os, signal, sys, time
from pathlib import Path

seed = next(word[5:] for word in sys.argv if word.startswith("seed="))
folder = Path(HERE) / seed
folder.mkdir(exist_ok=True)
(folder / "words").write_text(" ".join(sys.argv[1:]))
def end(status, code):
    (folder / "run.json").write_text(json.dumps(status))
    sys.exit(code)
signal.signal(signal.SIGTERM, lambda *_: end("interrupted", 130))
(folder / "run.json").write_text(json.dumps("running"))
(folder / "began").write_text(str(time.time()))
if seed == "7":
    print("error: seven is wrong")
    end("failed", 2)
if seed == "9":
    os.kill(os.getpid(), signal.SIGKILL)
time.sleep(60 if seed == "5" else 0.3)
(folder / "ended").write_text(str(time.time()))
end("finished", 0)
"""


@pytest.fixture
def place(tmp_path, monkeypatch):
    """A folder whose run.py is the stand-in; state() reads what that has written."""
    (tmp_path / "run.py").write_text(f"HERE = {str(tmp_path)!r}\n{RUN}")
    monkeypatch.setattr(runner, "ROOT", tmp_path)
    monkeypatch.setattr(runner, "changes", lambda folder: {})
    monkeypatch.setattr(runner, "config_of", lambda words: config(tmp_path, words))

    def state(config):
        file = tmp_path / str(config.seed) / "run.json"
        if not file.is_file():
            return End("not run")
        status = json.loads(file.read_text())
        return End(status, file.parent, kept=status == "finished")

    monkeypatch.setattr(runner, "state", state)
    return tmp_path


def config(place, words):
    seed = int(next(word[5:] for word in words if word.startswith("seed=")))
    model = SimpleNamespace(device="cpu")
    return SimpleNamespace(seed=seed, output_dir=str(place), name="x", model=model)


def job(place, seed, **parents):
    words = ("algo=spo", f"seed={seed}")
    return Job(f"job-{seed}", words, config(place, words), parents)


def times(place, seed):
    return [float((place / str(seed) / name).read_text()) for name in ("began", "ended")]


def test_jobs_run_side_by_side_and_the_same_once_more_keeps_them(place, capsys):
    jobs = [job(place, seed) for seed in (0, 1, 2)]
    Runner(jobs, 2).run()
    assert [job.end.status for job in jobs] == ["finished"] * 3
    first, second, third = (times(place, seed) for seed in (0, 1, 2))
    assert first[0] < second[1] and second[0] < first[1]  # at once
    assert third[0] > min(first[1], second[1])  # no more than two
    again = [job(place, seed) for seed in (0, 1, 2)]
    Runner(again, 2).run()
    assert all(job.end.kept for job in again)
    assert times(place, 0) == first
    Runner(anew := [job(place, 0)], 2, "always").run()
    assert times(place, 0) > first and not anew[0].end.kept
    assert "again=always" in (place / "0" / "words").read_text()


def test_failures_are_said_and_stop_only_what_needs_them(place, capsys):
    parent = job(place, 7)
    jobs = [parent, job(place, 1, weights_of=parent), job(place, 9), job(place, 0)]
    Runner(jobs, 1).run()
    assert [job.end.status for job in jobs] == ["failed", "not run", "failed", "finished"]
    errors = [job.end.error for job in jobs]
    assert errors == ["seven is wrong", "job-7 failed", "ended by SIGKILL", None]
    assert runner.print_table(jobs) == 3
    assert "failed: job-7: seven is wrong" in capsys.readouterr().out


@pytest.mark.parametrize("narrow", [True, False])
def test_only_finished_jobs_have_scores_and_folders_are_whole(narrow, monkeypatch, capsys):
    if narrow:
        [monkeypatch.setenv(*pair) for pair in {"FORCE_COLOR": "1", "COLUMNS": "80"}.items()]
    folder, before = Path("outputs/mini/a-s0-20261128-131416-2"), {1: 0.375}
    ends = [End(how, folder, None, before) for how in ("failed", "interrupted", "running")]
    ends.append(End("finished", folder, None, {1: 0.125}, kept=True))
    jobs = [Job(f"{i} algo=grpo seed={i}", (), None, end=e) for i, e in enumerate(ends)]
    runner.print_table(jobs)
    out = capsys.readouterr().out
    assert out.count(str(folder)) == 4 and ("0.375" in out, "0.125" in out) == (False, True)


@pytest.mark.parametrize(
    ("key", "words"),
    [
        ("weights_of", ["model.path=", "/checkpoints/final"]),
        ("rollouts_of", ["replay.from_runs=[", "replay.frozen=true"]),
        ("replay_of", ["replay.from_runs=[", "replay.own=false"]),
    ],
)
def test_a_job_takes_what_it_needs_from_its_parents_folder(place, key, words):
    parent = job(place, 0)
    child = job(place, 1, **{key: parent})
    Runner([parent, child], 2).run()
    assert times(place, 1)[0] > times(place, 0)[1]
    given = (place / "1" / "words").read_text()
    assert all(word in given for word in [*words, str(place / "0")])


def test_jobs_may_be_added_when_one_has_ended(place):
    def after(ended):
        return [job(place, ended.config.seed + 1)] if ended.config.seed < 2 else []

    running = Runner([job(place, 0)], 1, after=after)
    running.run()
    assert [job.end.status for job in running.jobs] == ["finished"] * 3


def test_an_interrupt_ends_the_running_jobs_and_starts_no_other(place):
    jobs = [job(place, 5), job(place, 6)]
    running = Runner(jobs, 1)
    killer = f"import os, signal, time; time.sleep(1.5); os.kill({os.getpid()}, signal.SIGINT)"
    process = subprocess.Popen([sys.executable, "-c", killer])
    with pytest.raises(KeyboardInterrupt):
        running.run()
    process.wait()
    assert [job.end.status for job in jobs] == ["interrupted", "not run"]
    assert not (place / "6").exists()


def test_a_gpu_has_one_process_at_a_time(tmp_path, monkeypatch):
    monkeypatch.setenv("SPO_BENCH_CACHE", str(tmp_path))
    program = (
        "import sys, time\nfrom experiments.runner import claim_gpu\n"
        "print(claim_gpu(lambda: print('waits', flush=True)), flush=True)\nsys.stdin.readline()"
    )
    environment = {**os.environ, runner.VISIBLE: "4,6", "SPO_BENCH_CACHE": str(tmp_path)}

    def start():
        return subprocess.Popen(
            [sys.executable, "-c", program],
            cwd=Path(runner.__file__).parents[1],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=environment,
        )

    first, second = start(), start()
    assert {first.stdout.readline(), second.stdout.readline()} == {"4\n", "6\n"}
    third = start()
    assert third.stdout.readline() == "waits\n"
    first.send_signal(signal.SIGKILL)  # locks end with their process
    assert third.stdout.readline() in ("4\n", "6\n")
    for process in (second, third):
        process.communicate("\n")
    first.communicate()


@pytest.mark.parametrize(
    ("listed", "gpus_there"),
    [("0,1", "0 1"), ("2,2", "2 2"), ("", ""), ("-1", ""), ("GPU-a, GPU-b", "GPU-a GPU-b")],
)
def test_visible_gpus_are_those_of_the_variable(listed, gpus_there, monkeypatch):
    monkeypatch.setenv(runner.VISIBLE, listed)
    assert runner.visible_gpus() == gpus_there.split()
