"""The judge's benchmark: its ways do the same work, its clocks run, its ratios are right."""

import os
import subprocess
import sys
import time

import pandas as pd
import pytest

from envs.sandbox.base import Job
from envs.sandbox.docker import DockerSandbox
from envs.sandbox.docker_client import LABEL
from envs.sandbox.embedded import EmbeddedSandbox, strongest_form
from experiments.benchmarks.judge import measure, plot, summarise
from experiments.benchmarks.judging import against
from experiments.benchmarks.judging.against import HERE, ProbeProcess, checkout
from experiments.benchmarks.judging.meter import Meter, processes
from experiments.benchmarks.judging.probe import Probe
from experiments.benchmarks.judging.training import Cell, cells
from experiments.benchmarks.judging.ways import FloorWay, SubprocessWay
from experiments.benchmarks.judging.workload import large, small

JOBS = [Job("print(2 * int(input()))", ("1", "20")), Job("print(input()[::-1])", ("abc",))]


@pytest.mark.parametrize("way", [FloorWay, SubprocessWay])
@pytest.mark.parametrize("workers", [1, 2])
def test_ways_keep_the_order_of_jobs_and_inputs(way, workers):
    opened = way(workers)
    assert opened.run(JOBS) == [["2\n", "40\n"], ["cba\n"]]
    opened.close()


def test_workload_is_the_same_every_time():
    assert small(2) == small(2)
    assert len(large(1)[0].inputs[0]) == 10**6


def test_descendants_are_on_the_clock():
    burn = "import time\nwhile time.process_time() < 0.3: pass"
    meter = Meter(None)
    before = meter.read()
    child = subprocess.Popen([sys.executable, "-c", burn])
    assert {process.pid: process for process in processes()}[child.pid].parent == os.getpid()
    child.wait()
    after = meter.read()
    assert after.all_s - before.all_s >= 0.28  # each clock is cut to its tick of 10 ms
    assert after.host_s - before.host_s < 0.28
    assert after.engine_s == 0


def test_a_measurement_counts_tests_and_time():
    way = SubprocessWay(1)
    row, passes = measure(way, JOBS, 2, Meter(None))
    way.close()
    assert row["tests"] == 6
    assert len(passes) == 2
    assert row["wall_s"] > 0
    assert row["cpu_s"] > 0


def test_ratios(tmp_path):
    costs = {"floor": 1.0, "docker": 1.5, "docker exec": 30.0}
    rows = [
        {"round": number, "workload": "small", "workers": workers, "way": way, "tests": 1000}
        | {"wall_s": cost, "cpu_s": cost * (1 + number), "host_cpu_s": 0.0, "engine_cpu_s": 0.0}
        for number in range(3)
        for workers in (1, 2)
        for way, cost in costs.items()
    ]
    summary = summarise(pd.DataFrame(rows))
    docker = summary[summary["way"] == "docker"].iloc[0]
    assert docker["cpu_ms"] == pytest.approx(3.0)  # the median round doubles the cost
    assert docker["tests_per_cpu_s"] == pytest.approx(1000 / 3)
    assert docker["cpu_to_floor"] == pytest.approx(1.5)
    assert docker["exec_cpu_to_it"] == pytest.approx(20.0)
    assert docker["times_exec_rate"] == pytest.approx(20.0)
    plot(summary, tmp_path / "cpu.png")
    assert (tmp_path / "cpu.png").read_bytes().startswith(b"\x89PNG")


def test_the_training_workload_is_the_same_every_time_and_no_program_comes_twice():
    made = cells()
    assert [cell.plain() for cell in cells()] == [cell.plain() for cell in made]
    training = made[0]
    programs = [program for _, program, _ in training.responses]
    assert len(set(programs)) == len(programs)
    assert 0.05 < sum(right for *_, right in training.responses) / len(programs) < 0.15
    assert {len(tests) for tests in training.problems} == set(range(1, 11))
    late = made[1]
    assert 0.7 < sum(right for *_, right in late.responses) / len(late.responses) < 0.9


def test_rounds_of_warming_up_tell_a_judge_that_programs_pass():
    form = strongest_form(i_accept_no_isolation=False)
    [cell] = [cell for cell in cells() if cell.name == "right, 5 tests"]
    assert {problem for problem, *_ in cell.responses} == set(range(len(cell.problems)))
    one = Cell(cell.name, cell.problems[:1], cell.responses[:1])
    with EmbeddedSandbox(form=form) as sandbox:
        probe = Probe(sandbox, Meter(None), [one.plain()])
        for _ in range(against.WARM_UPS):
            probe.measure(one.name)
        assert sandbox.shots == against.WARM_UPS
        probe.measure(one.name)
        assert sandbox.shots == against.WARM_UPS


def test_a_checkout_has_the_commit_and_this_benchmark():
    with checkout("HEAD") as folder:
        assert (folder / "envs" / "judge.py").exists()
        ours = HERE / "experiments" / "benchmarks" / "judging" / "probe.py"
        theirs = folder / "experiments" / "benchmarks" / "judging" / "probe.py"
        assert theirs.read_text() == ours.read_text()
    assert not folder.exists()


def test_a_probe_judges_and_tells_what_it_costs():
    form = strongest_form(i_accept_no_isolation=False)
    right, wrong = (1, "n = int(input())\nprint(n + 1)", True), (0, "print(-1)", False)
    tests = [("1", "2"), ("5", "6")]
    probe = ProbeProcess(HERE, form, [Cell("two", [tests, tests], [right, wrong])])
    try:
        row = probe.measure("two")
        assert (row["programs"], row["tests"]) == (2, 3)
        assert row["wall_s"] > 0
        assert row["host_cpu_s"] > 0
        assert probe.measure("two")["tests"] >= 3  # not from the judge's cache
    finally:
        probe.close()


@pytest.mark.parametrize(
    ("given", "said"),
    [("--backends=embedded", "choose from"), ("--backends=docker", "make doctor")],
)
def test_a_backend_that_is_not_there_is_one_line(given, said, tmp_path):
    command = [sys.executable, "-m", "experiments.benchmarks.judge", "--against", "HEAD", given]
    nowhere = os.environ | {"DOCKER_HOST": f"unix://{tmp_path}/none"}
    told = subprocess.run(command, capture_output=True, text=True, env=nowhere, check=False)
    assert told.returncode and said in told.stderr and "Traceback" not in told.stderr


def test_a_probe_refuses_another_verdict_than_expected(capfd):
    form = strongest_form(i_accept_no_isolation=False)
    probe = ProbeProcess(HERE, form, [Cell("one", [[("1", "2")]], [(0, "print(3)", True)])])
    with pytest.raises(RuntimeError, match="ended"):
        probe.measure("one")
    probe.close()
    assert "WRONG_ANSWER" in capfd.readouterr().err


@pytest.mark.docker
def test_a_pass_in_which_a_container_ended_is_made_again(engine):
    """Its clock is gone with it: the difference of two readings would be less than nothing."""

    class Unlucky(Meter):
        readings = 0

        def read(self):
            self.readings += 1
            if self.readings == 2:
                label = {"label": f"{LABEL}.pid={os.getpid()}"}
                for container in engine.containers.list(filters=label):
                    container.kill()
                while self._our_containers():
                    time.sleep(0.01)
            return super().read()

    cell = Cell("one", [[("1", "2")]], [(0, "print(2)", True)])
    with DockerSandbox(1) as sandbox:
        Probe(sandbox, Meter(engine), [cell.plain()]).measure("one")  # containers start late
        meter = Unlucky(engine)
        row = Probe(sandbox, meter, [cell.plain()]).measure("one")
    assert meter.readings > 2
    assert row["programs"] == 1 and row["sandbox_cpu_s"] > -0.02  # two ticks of the clock


def test_ratios_are_taken_within_a_round():
    rows = [
        {"round": number, "backend": "namespaces", "cell": "training", "checkout": checkout}
        | {"programs": 10, "tests": 20, "wall_s": load * cost, "host_cpu_s": 0.0}
        | {"engine_cpu_s": 0.0, "sandbox_cpu_s": load * cost}
        for number, load in enumerate((1.0, 7.0, 3.0))
        for checkout, cost in (("before", 0.1), ("now", 0.05))
    ]
    (row,) = against.summarise(pd.DataFrame(rows)).to_dict("records")
    assert row["cpu_ms before"] == pytest.approx(30)
    assert row["sandbox_ms now"] == pytest.approx(15)
    assert row["wall ratio"] == row["cpu least"] == row["cpu most"] == pytest.approx(0.5)
    alone = pd.DataFrame([row for row in rows if row["checkout"] == "now"])
    assert "cpu ratio" not in against.summarise(alone)
