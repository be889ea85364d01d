"""Each benchmark runs to its end, at a size that takes seconds, and leaves its rows."""

import importlib
import json
import sys

import pytest

from experiments.benchmarks import every, rows

SMALL = {
    "generate": ["--prompts", "2", "--responses", "2", "--max-tokens", "8", "--rounds", "1"],
    "prepare": ["--rows", "300"],
    "train": ["--prompts", "2", "--group", "2", "--rounds", "1"],
    "memory": ["--shapes", "nano", "--cases", "GRPO"],
    "report": ["--runs", "20", "--rows", "2000"],
    "start": ["--rounds", "1"],
    "runtimes": ["--rounds", "1", "--steps", "2"],
}
SLOW = ("report", "start", "runtimes")


def test_every_benchmark_is_tried():
    assert {*SMALL, "judge"} == set(every.NAMES)  # that one has a file of its own


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=pytest.mark.slow if name in SLOW else ()) for name in SMALL],
)
def test_it_runs_to_its_end(name, monkeypatch, tmp_path):
    if name == "runtimes":
        pytest.importorskip("ray", reason="Ray is not installed; pip install -e '.[ray]'")
    monkeypatch.setattr(rows, "FOLDER", tmp_path)
    benchmark = importlib.import_module(f"experiments.benchmarks.{name}")
    given = SMALL[name]
    if name in ("train", "memory", "start", "runtimes"):
        given = [*given, "--out", str(tmp_path)]
    monkeypatch.setattr(sys, "argv", [name, *given])
    benchmark.main()
    found = json.loads((tmp_path / f"{name}.json").read_text())
    assert max(each["median"] for each in found["rows"]) > 0
