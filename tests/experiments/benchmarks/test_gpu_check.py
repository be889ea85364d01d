"""`make gpu-check`, as far as it can be tried without a GPU: every part, at tiny shapes."""

import json

import pytest
import torch

from experiments.benchmarks import gpu_check, memory
from experiments.benchmarks.common import row
from experiments.benchmarks.gpu_check import Options, main, make_bench
from experiments.benchmarks.workload import generate_responses, step_of
from experiments.engines.base import Sampling
from experiments.learner import memory as estimates
from experiments.policy import loading


# Slow: all parts at once. Below, single parts are done, fail, are made smaller and left out.
@pytest.mark.slow
@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU here")
def test_every_part_is_done_or_says_why_not(tmp_path, monkeypatch):
    sizes = {size: gpu_check.SIZES[size] for size in ("0.5B", "8B")}  # 1.5B is of the first's kind
    monkeypatch.setattr(gpu_check, "SIZES", sizes)
    assert main(Options(small=True, out=tmp_path)) == 0
    result = json.loads((tmp_path / "gpu.json").read_text())
    made, rows = result["made"], result["rows"]
    done = {row["case"].partition(": ")[0] for row in rows}
    assert set(gpu_check.planned()) == done | made["skipped"].keys()
    assert not made["failed"]
    assert {key.split()[0] for key in made["skipped"]} == {"tests", "vllm"}
    agreed = [row["met"] for row in rows if row["measure"] == "mean difference"]
    assert agreed == [True] * 2
    learnt = {row["case"].split(",")[0] for row in rows if row["case"].startswith("learn ")}
    assert learnt == {f"learn 0.5B: {name}" for name in gpu_check.ALGORITHMS} | {
        "learn 8B: GRPO without KL",
        "learn 8B: PPO critic=separate",
    }
    page = (tmp_path / "gpu.md").read_text()
    assert "no GPU: a trial at tiny shapes" in page
    assert all(key in page for key in gpu_check.planned())


def test_a_part_that_fails_and_one_without_time_are_on_the_page(tmp_path, monkeypatch):
    def broken(_):
        raise RuntimeError("out of memory")

    parts = {"generate": (broken, ("0.5B",)), "agree": (gpu_check.agree, ())}
    monkeypatch.setattr(gpu_check, "PARTS", parts)
    assert main(Options(small=True, out=tmp_path)) == 1
    assert "generate 0.5B: RuntimeError: out of memory" in (tmp_path / "gpu.md").read_text()
    assert main(Options(small=True, budget=1, out=tmp_path)) == 0
    assert "generate 0.5B: no time left of 1 s" in (tmp_path / "gpu.md").read_text()


def test_rows_of_a_part_that_fails_halfway_are_kept(tmp_path, monkeypatch):
    def broken(_):
        yield row("the first half", "time", [1.0], "s")
        raise RuntimeError("out of memory")

    monkeypatch.setattr(gpu_check, "PARTS", {"learn": (broken, ("0.5B",))})
    assert main(Options(small=True, out=tmp_path)) == 1
    assert [each["case"] for each in json.loads((tmp_path / "gpu.json").read_text())["rows"]] == [
        "learn 0.5B: the first half"
    ]


def test_a_model_of_ones_own_is_tried_with_its_weights_prompts_and_end(tmp_path, monkeypatch, nano):
    monkeypatch.setattr(gpu_check, "PARTS", {"agree": (gpu_check.agree, ())})
    assert main(Options(model="nano", small=True, out=tmp_path)) == 0
    rows = json.loads((tmp_path / "gpu.json").read_text())["rows"]
    assert {row["case"].partition(":")[0] for row in rows} == {"agree nano"}
    assert [row["met"] for row in rows if row["goal"]] == [True] * 2
    bench = make_bench("nano", True, torch.device("cpu"), tmp_path)
    policy, tokenizer = nano
    assert bench.ends == loading.end_tokens(policy.model, tokenizer)
    weight = next(bench.policy().model.parameters())
    assert torch.equal(weight, next(policy.model.parameters()).bfloat16())
    engine = bench.our_engine(bench.policy(), bench.ends)
    responses = generate_responses(engine, bench.prompts, 1, Sampling(bench.batch.max_tokens))
    assert tokenizer.decode(bench.prompts[0]).endswith("<|assistant|>")
    assert len(responses) == len(bench.prompts) == bench.batch.prompts


def test_what_does_not_fit_is_made_smaller_then_adapted_then_left_out(tmp_path, monkeypatch):
    bench = make_bench("8B", True, torch.device("cpu"), tmp_path)
    sizes = []

    def recorded(algorithm, policy, pad, **train):
        sizes.append(train["micro_batch"])
        return step_of(algorithm, policy, pad, **train)

    monkeypatch.setattr(memory, "step_of", recorded)
    whole = memory.measure_step(bench.model_config, bench.batch, "GRPO", "bfloat16", shrink=True)
    assert sizes == [64]
    monkeypatch.setattr(estimates, "free_bytes", lambda _: whole.estimate_mib * 2**20)
    less = memory.measure_step(bench.model_config, bench.batch, "GRPO", "bfloat16", shrink=True)
    assert sizes[1] < 64
    assert less.estimate_mib < whole.estimate_mib
    monkeypatch.setattr(estimates, "free_bytes", lambda _: 1000)
    rows = list(gpu_check.learn(bench))
    assert all("needs" in row.case for row in rows)
    assert any("adapter" in row.case for row in rows)
