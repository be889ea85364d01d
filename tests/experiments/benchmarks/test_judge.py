"""The judge's benchmark: its workloads stay the same, its clocks run, its ratios are right."""

import os
import subprocess
import sys
import time
from dataclasses import asdict
from pathlib import Path

import pytest

from envs.sandbox.embedded import EmbeddedSandbox, strongest_form
from experiments.benchmarks import judge
from experiments.benchmarks.common import ROOT
from experiments.benchmarks.judge import ProbeProcess, Workload, checkout, summarise, workloads
from experiments.benchmarks.judge_probe import Probe, machine_cpu_s, own_cpu_s


def test_descendants_and_the_whole_machine_are_on_the_clock():
    burn = "import time\nwhile time.process_time() < 0.3: pass"
    clocks = (own_cpu_s, machine_cpu_s)
    before, own = [clock() for clock in clocks], time.process_time()
    subprocess.run([sys.executable, "-c", burn], check=True)
    # Each clock is cut to its tick of 10 ms.
    assert all(clock() - start >= 0.28 for clock, start in zip(clocks, before, strict=True))
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
        probe = Probe(sandbox, own_cpu_s, [asdict(one)])
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
        row = probe.ask("two")
        assert (row["programs"], row["tests"]) == (2, 3)
        assert row["wall_s"] > 0
        assert row["cpu_s"] > 0
        assert probe.ask("two")["tests"] >= 3  # not from the judge's cache
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
        probe.ask("one")
    probe.close()
    assert "WRONG_ANSWER" in capfd.readouterr().err


def test_the_goal_is_for_the_cpu_time_of_this_checkout():
    costs = {"CPU time per program": 5.0, "wall time per program": 5.0}
    rows = summarise("docker", "right, 1 test", {"before": [costs], "now": [costs]})
    [goal] = [row for row in rows if row.goal]
    assert (goal.case, goal.measure) == ("docker: right, 1 test, now", "CPU time per program")
    assert (goal.goal, goal.met) == ("≤ 4", False)
