"""Each benchmark runs to its end, at a size that takes seconds, and leaves its rows."""

import importlib
import json
import os

import pytest
import transformers

from envs.command_line import parse_arguments
from experiments.benchmarks.__main__ import TITLES
from tests.selection import all_but_slow

SMALL = {
    "generate": ["prompts=2", "responses=2", "max_tokens=8", "rounds=1"],
    "prepare": ["rows=100"],
    "train": ["prompts=2", "group=2", "rounds=1"],
    "memory": ["shapes=nano", "cases=GRPO"],
    "report": ["runs=20", "rows=2000"],
    "start": ["rounds=1"],
    "runtimes": ["rounds=1", "steps=2"],
}
ROWS = {  # that a result has among others
    "generate": {"bare forward", "generate", "ours", "ours, bfloat16"},
    "train": {"raw", "GRPO", "whole GRPO step, ours", "whole GRPO step, raw pass alone"},
}
OF_PROCESSES = ("prepare", "memory")  # each of their measurements starts a Python of its own
SLOW = ("report", "start", "runtimes", *OF_PROCESSES)


def test_every_benchmark_is_tried():
    assert {*SMALL, "judge"} == set(TITLES)  # test_judge.py


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=pytest.mark.slow if name in SLOW else ()) for name in SMALL],
)
def test_it_runs_to_its_end(name, tmp_path):
    if name == "runtimes":
        pytest.importorskip("ray", reason="Ray is not installed; pip install -e '.[ray]'")
    benchmark = importlib.import_module(f"experiments.benchmarks.{name}")
    benchmark.main(parse_arguments(benchmark.Options, [*SMALL[name], f"out={tmp_path}"]))
    result = json.loads((tmp_path / f"{name}.json").read_text())
    assert max(row["median"] for row in result["rows"]) > 0
    assert ROWS.get(name, set()) <= {row["case"] for row in result["rows"]}


# Slow: tests of gpu-check measure memory in this process too.
@pytest.mark.parametrize("name", all_but_slow(OF_PROCESSES, slow=["memory"]))
def test_what_it_measures_in_another_process_runs_to_its_end_in_this_one(
    name, tmp_path, monkeypatch
):
    benchmark = importlib.import_module(f"experiments.benchmarks.{name}")
    monkeypatch.setattr(benchmark, "in_new_process", lambda act, *arguments: act(*arguments))
    monkeypatch.setenv("SPO_BENCH_CACHE", os.environ["SPO_BENCH_CACHE"])  # `prepare` sets its own
    verbosity = transformers.utils.logging.get_verbosity()
    try:
        test_it_runs_to_its_end(name, tmp_path)
    finally:
        transformers.utils.logging.set_verbosity(verbosity)
