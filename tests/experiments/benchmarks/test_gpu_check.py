"""`make gpu-check`, as far as it can be tried without a GPU: every part, at tiny shapes."""

import json

import pytest
import torch

from experiments.benchmarks import gpu_check
from experiments.benchmarks.gpu_check import Bench, Options, main, make_bench


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU here")
def test_every_part_is_done_or_says_why_not(tmp_path):
    assert main(Options(small=True, out=tmp_path)) == 0
    held = json.loads((tmp_path / "gpu.json").read_text())
    planned = set(gpu_check.planned())
    assert planned == held["parts"].keys() | held["skipped"].keys()
    assert not held["failed"]
    assert {key.split()[0] for key in held["skipped"]} == {"tests", "vllm"}
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

    parts = {"generate": (broken, ("0.5B",)), "agree": (gpu_check.agree, ())}
    monkeypatch.setattr(gpu_check, "PARTS", parts)
    assert main(Options(small=True, out=tmp_path)) == 1
    assert "generate 0.5B: RuntimeError: out of memory" in (tmp_path / "gpu.md").read_text()
    assert main(Options(small=True, budget=1, out=tmp_path)) == 0
    assert "generate 0.5B: no time left of 1 s" in (tmp_path / "gpu.md").read_text()


def test_what_does_not_fit_is_made_smaller_then_adapted_then_left_out(tmp_path, monkeypatch):
    bench = make_bench("8B", True, torch.device("cpu"), tmp_path)
    algorithm, config = gpu_check.algorithms()["GRPO"], bench.batch.config(dtype="bfloat16")
    shape = gpu_check.memory.shape_of(bench.model_config)
    whole = gpu_check.fit_micro_batch(bench, config, shape, algorithm)
    assert config.train.micro_batch == 64
    monkeypatch.setattr(Bench, "free", lambda _: whole)
    assert gpu_check.fit_micro_batch(bench, config, shape, algorithm) < whole
    assert config.train.micro_batch < 64
    monkeypatch.setattr(Bench, "free", lambda _: 1000)
    rows = gpu_check.learn(bench)
    assert all("does not fit" in row.case for row in rows)
    assert any("LoRA" in row.case for row in rows)
