"""The judge's benchmark: its workloads stay the same, its clocks run, its ratios are right."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from envs import Judge
from envs.command_line import parse_arguments
from envs.sandbox.embedded import EmbeddedSandbox, strongest_form
from experiments.benchmarks import judge
from experiments.benchmarks.common import ROOT
from experiments.benchmarks.judge import (
    ProbeProcess,
    checkout,
    load_rows,
    summarise,
    verl_folder,
    workloads,
)
from experiments.benchmarks.judge_probe import VERL, Probe, Workload, new_processes, problems
from experiments.errors import UserError


def test_the_training_workload_is_the_same_every_time_and_no_program_comes_twice():
    made = workloads()
    assert workloads() == made
    training = made[0]
    programs = [program for _, program, _ in training.responses]
    assert len(set(programs)) == len(programs)
    assert 0.05 < sum(right for *_, right in training.responses) / len(programs) < 0.15
    assert {len(problem["tests"]) for problem in training.problems} == set(range(1, 11))
    late = made[1]
    assert 0.7 < sum(right for *_, right in late.responses) / len(late.responses) < 0.9


def test_rounds_of_warming_up_tell_a_judge_that_programs_pass():
    form = strongest_form(i_accept_no_isolation=False)
    [workload] = [workload for workload in workloads() if workload.name == "right, 5 tests"]
    assert {problem for problem, *_ in workload.responses} == set(range(len(workload.problems)))
    one = Workload(workload.name, workload.problems[:1], workload.responses[:1])
    with EmbeddedSandbox(form=form) as sandbox:
        probe = Probe(lambda: Judge(sandbox).judge, [one])
        for _ in range(judge.WARM_UPS):
            probe.judge(one.name)
        assert sandbox.one_shots == judge.WARM_UPS
        probe.judge(one.name)
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
    problem = {"tests": [("1", "2"), ("5", "6")]}
    probe = ProbeProcess(ROOT, form, [Workload("two", [problem, problem], [right, wrong])])
    try:
        row = probe.measure("two")
        assert (row["programs"], row["tests"]) == (2, 3)
        assert row["wall time"] > 0
        assert row["CPU time"] > 0
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
    probe = ProbeProcess(
        ROOT, form, [Workload("one", [{"tests": [("1", "2")]}], [(0, "print(3)", True)])]
    )
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


def rows_file(folder: Path) -> Path:
    """One problem with two tests, as TACO has it; its right and wrong programs stand in the row."""
    tests = json.dumps({"inputs": ["1\n", "5\n"], "outputs": ["2\n", "6\n"]})
    solutions = json.dumps(["print(int(input()) + 1)", "print(2)"])  # the second is mislabelled
    row = {"question": "Add one.", "input_output": tests, "solutions": solutions}
    path = folder / "train.jsonl"
    path.write_text(json.dumps(row | {"name": "add", "difficulty": "EASY"}) + "\n")
    return path


def test_a_data_sets_programs_are_judged_by_all_ways_and_agreement_is_counted(tmp_path):
    form = strongest_form(i_accept_no_isolation=False)
    workload = load_rows("taco", rows_file(tmp_path), programs=10)
    rows = judge.measure_rows(1, {"now": ROOT}, [form], workload, verl=None)
    found = {(row.case, row.measure): row.median for row in rows}
    for case in (judge.NEW_PROCESSES, f"{form}, now"):
        assert found[f"train: {case}", "right programs accepted, of 2"] == 1
        assert found[f"train: {case}", "programs per second of a core"] > 0
    assert (
        f"train: {form}, now",
        f"CPU time per program relative to {judge.NEW_PROCESSES}",
    ) in found


def test_a_crash_and_a_wrong_answer_fail_in_a_new_process_too(tmp_path):
    [problem] = problems(load_rows("taco", rows_file(tmp_path), programs=10))
    assert new_processes(problem, "print(int(input()) + 1)")
    assert not new_processes(problem, "print(int(input()) + 1)\nraise SystemExit(3)")
    assert not new_processes(problem, "print(2)")


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (["task=taco"], "task=NAME and path=PATH"),
        (["verl=somewhere"], "verl=FOLDER needs a data set"),
    ],
)
def test_a_data_set_needs_task_and_path(given, said, capsys):
    with pytest.raises(UserError, match=said):
        judge.main(parse_arguments(judge.Options, given))


def test_a_folder_without_verl_is_one_line(tmp_path):
    with pytest.raises(UserError, match="no verl/utils/reward_score/prime_code"):
        verl_folder(tmp_path)


def test_verls_judge_is_called_with_all_tests_and_what_it_prints_is_no_answer(tmp_path):
    package = tmp_path / "peer" / VERL
    package.mkdir(parents=True)
    accepts_two = (
        "import time\n"
        "def compute_score(text, tests, continuous):\n"
        "    print('judging')\n"
        "    end = time.process_time() + 0.1\n"
        "    while time.process_time() < end: pass\n"
        "    return (text.startswith('```python') and tests['outputs'] == ['2\\n', '6\\n'], [])\n"
    )
    (package / "__init__.py").write_text(accepts_two)
    workload = load_rows("taco", rows_file(tmp_path), programs=10)
    rows = judge.measure_rows(1, {}, [], workload, tmp_path / "peer")
    found = {(row.case, row.measure): row.median for row in rows}
    assert found["train: verl's judge", "right programs accepted, of 2"] == 2
