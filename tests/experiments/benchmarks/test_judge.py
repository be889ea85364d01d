"""The judge's benchmark: its workloads stay the same, its clocks run, its ratios are right."""

import os
import subprocess
import sys
import time
from dataclasses import asdict
from pathlib import Path

import pytest

from envs.sandbox.docker import DockerSandbox
from envs.sandbox.docker_client import LABEL
from envs.sandbox.embedded import EmbeddedSandbox, strongest_form
from experiments.benchmarks import judge
from experiments.benchmarks.common import ROOT
from experiments.benchmarks.judge import ProbeProcess, Workload, checkout, summarise, workloads
from experiments.benchmarks.judge_probe import Meter, Probe, processes


def test_descendants_are_on_the_clock():
    burn = "import time\nwhile time.process_time() < 0.3: pass"
    meter = Meter(None)
    before, own = meter.read(), time.process_time()
    child = subprocess.Popen([sys.executable, "-c", burn])
    assert {process.pid: process for process in processes()}[child.pid].parent == os.getpid()
    child.wait()
    assert meter.read().cpu_s - before.cpu_s >= 0.28  # each clock is cut to its tick of 10 ms
    assert time.process_time() - own < 0.28


def test_the_training_workload_is_the_same_every_time_and_no_program_comes_twice():
    made = workloads()
    assert workloads() == made
    training = made[0]
    programs = [program for _, program, _ in training.responses]
    assert len(set(programs)) == len(programs)
    assert 0.05 < sum(right for *_, right in training.responses) / len(programs) < 0.15
    assert {len(tests) for tests in training.problems} == set(range(1, 11))
    late = made[1]
    assert 0.7 < sum(right for *_, right in late.responses) / len(late.responses) < 0.9


def test_rounds_of_warming_up_tell_a_judge_that_programs_pass():
    form = strongest_form(i_accept_no_isolation=False)
    [workload] = [workload for workload in workloads() if workload.name == "right, 5 tests"]
    assert {problem for problem, *_ in workload.responses} == set(range(len(workload.problems)))
    one = Workload(workload.name, workload.problems[:1], workload.responses[:1])
    with EmbeddedSandbox(form=form) as sandbox:
        probe = Probe(sandbox, Meter(None), [asdict(one)])
        for _ in range(judge.WARM_UPS):
            probe.measure(one.name)
        assert sandbox.one_shots == judge.WARM_UPS
        probe.measure(one.name)
        assert sandbox.one_shots == judge.WARM_UPS


def test_a_checkout_has_the_commit_and_this_probe():
    with checkout("HEAD") as folder:
        assert (folder / "envs" / "judge" / "judge.py").exists()
        probe = Path("experiments") / "benchmarks" / "judge_probe.py"
        assert (folder / probe).read_text() == (ROOT / probe).read_text()
    assert not folder.exists()


def test_a_probe_judges_and_tells_what_it_costs():
    form = strongest_form(i_accept_no_isolation=False)
    right, wrong = (1, "n = int(input())\nprint(n + 1)", True), (0, "print(-1)", False)
    tests = [("1", "2"), ("5", "6")]
    probe = ProbeProcess(ROOT, form, [Workload("two", [tests, tests], [right, wrong])])
    try:
        row = probe.measure("two")
        assert (row["programs"], row["tests"]) == (2, 3)
        assert row["wall_s"] > 0
        assert row["cpu_s"] > 0
        assert probe.measure("two")["tests"] >= 3  # not from the judge's cache
    finally:
        probe.close()


@pytest.mark.parametrize(
    ("given", "said"),
    [("backends=embedded", "choose from"), ("backends=docker", "make doctor")],
)
def test_a_backend_that_is_not_there_is_one_line(given, said, tmp_path):
    command = [sys.executable, "-m", "experiments.benchmarks.judge", "against=HEAD", given]
    nowhere = os.environ | {"DOCKER_HOST": f"unix://{tmp_path}/none"}
    told = subprocess.run(command, capture_output=True, text=True, env=nowhere, check=False)
    assert told.returncode and said in told.stderr and "Traceback" not in told.stderr


def test_a_probe_refuses_another_verdict_than_expected(capfd):
    form = strongest_form(i_accept_no_isolation=False)
    probe = ProbeProcess(ROOT, form, [Workload("one", [[("1", "2")]], [(0, "print(3)", True)])])
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

    workload = Workload("one", [[("1", "2")]], [(0, "print(2)", True)])
    with DockerSandbox(1) as sandbox:
        Probe(sandbox, Meter(engine), [asdict(workload)]).measure("one")  # containers start late
        meter = Unlucky(engine)
        row = Probe(sandbox, meter, [asdict(workload)]).measure("one")
    assert meter.readings > 2
    assert row["programs"] == 1 and row["cpu_s"] > -0.02  # two ticks of the clock


def test_the_goal_is_for_the_cpu_time_of_this_checkout():
    costs = {"CPU time per program": 5.0, "wall time per program": 5.0}
    rows = summarise("docker", "right, 1 test", {"before": [costs], "now": [costs]})
    [goal] = [row for row in rows if row.goal]
    assert (goal.case, goal.measure) == ("docker: right, 1 test, now", "CPU time per program")
    assert (goal.goal, goal.met) == ("≤ 4", False)
