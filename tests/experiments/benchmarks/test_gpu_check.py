"""`make gpu-check`, as far as it can be tried without a GPU: every part, at tiny shapes."""

import json

import pytest
import torch

from experiments.benchmarks import gpu_check
from experiments.benchmarks.gpu import parts
from experiments.benchmarks.gpu.sizes import SMALL


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU here")
def test_every_part_is_done_or_says_why_not(tmp_path):
    assert gpu_check.main(["--small", "--out", str(tmp_path)]) == 0
    held = json.loads((tmp_path / "gpu.json").read_text())
    planned = {f"{name} {size}" for name, size in gpu_check.planned()}
    assert planned == held["parts"].keys() | held["skipped"].keys()
    assert not held["failed"]
    assert {key.split()[0] for key in held["skipped"]} == {"tests", "vllm", "compiled"}
    agreed = [row for row in held["parts"]["agree 0.5B"] if row["measure"] == "mean difference"]
    assert [row["met"] for row in agreed] == [True, True]
    learnt = {row["case"].split(",")[0] for row in held["parts"]["learn 8B"]}
    assert {"GRPO", "SPO q0=group", "PPO critic=separate"} <= learnt
    page = (tmp_path / "gpu.md").read_text()
    assert "no GPU: a trial at tiny shapes" in page
    assert all(key in page for key in planned)


def test_a_part_that_fails_and_one_without_time_are_on_the_page(tmp_path, monkeypatch):
    def broken(_):
        raise RuntimeError("out of memory")

    monkeypatch.setattr(parts, "PARTS", {"write": (broken, ("0.5B",)), "agree": (parts.agree, ())})
    assert gpu_check.main(["--small", "--out", str(tmp_path)]) == 1
    assert "write 0.5B: RuntimeError: out of memory" in (tmp_path / "gpu.md").read_text()
    assert gpu_check.main(["--small", "--budget", "1", "--out", str(tmp_path)]) == 0
    assert "write 0.5B: no time left of 1 s" in (tmp_path / "gpu.md").read_text()


def test_what_does_not_fit_is_made_smaller_then_adapted_then_left_out(tmp_path, monkeypatch):
    bench = parts.Bench(SMALL["8B"], torch.device("cpu"), tmp_path, 1)
    algorithm = parts.algorithms()["GRPO"]
    config = bench.run_config()
    shape = parts.memory.shape_of(bench.model_config())
    whole = parts._fitted(bench, config, shape, algorithm)
    assert config.train.micro_batch == 64
    monkeypatch.setattr(parts.Bench, "free", lambda _: whole)
    assert parts._fitted(bench, config, shape, algorithm) < whole
    assert config.train.micro_batch < 64
    monkeypatch.setattr(parts.Bench, "free", lambda _: 1000)
    rows = parts.learn(bench)
    assert all("does not fit" in row.case for row in rows)
    assert any("LoRA" in row.case for row in rows)


def test_another_version_is_said():
    assert gpu_check.differences({"torch": "2.11.0+cu130", "transformers": "5.19.0"}) == [
        "torch 2.11.0 here; all else was tested with 2.13.0."
    ]
