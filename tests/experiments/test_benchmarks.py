"""The benchmarks at tiny sizes: they run, measure in turn, and judge what they claim to."""

import json
import subprocess
import sys

from experiments.benchmarks import common, gpu_check, judge


def test_cases_take_turns_and_ratios_are_taken_within_a_round(capsys):
    seen = []

    def case(name, value):
        return lambda number: seen.append((number, name)) or {"time": value * (number + 1)}

    values = common.alternate({"a": case("a", 1.0), "b": case("b", 3.0)}, rounds=2)
    assert seen == [(0, "a"), (0, "b"), (1, "b"), (1, "a"), (2, "a"), (2, "b")]
    common.report("title", values, "s", baseline="a")
    assert "3.00 (3.00 to 3.00)" in capsys.readouterr().out


def test_every_part_of_the_gpu_check_runs_at_tiny_shapes(capsys):
    assert gpu_check.main(gpu_check.Options(small=True)) == 0
    found = capsys.readouterr().out
    assert "FAILED" not in found
    for name in gpu_check.STEPS:
        assert f"{name}: " in found


def test_the_made_programs_get_the_verdicts_of_their_labels():
    workloads = {"wrong, 5 tests": judge.made_workloads()["wrong, 5 tests"]}
    lines = "\n".join([json.dumps(workloads), json.dumps("wrong, 5 tests")])
    command = [sys.executable, "-c", judge.PROBE, "embedded"]
    done = subprocess.run(command, input=lines, capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["96"]
