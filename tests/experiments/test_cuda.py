"""What is the same on a GPU as on a CPU; `make gpu-check` runs these."""

import copy

import pytest
import torch

from envs.problem import Problem
from experiments.benchmarks.common import algorithms, generate_responses, learner_of, rewarded
from experiments.engines.base import Request, Sampling
from experiments.engines.hf import HFEngine
from experiments.learner.costs import free_bytes
from experiments.policy import loading
from experiments.policy.policy import Policy
from experiments.run_dir.ledger import PeakMemory
from experiments.sample import PromptedProblem

pytestmark = [
    pytest.mark.cuda,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU here"),
]
PROMPTS = [[2, 7, 9, 30], [2, 5], [2, 11, 3, 8, 40, 12, 6]]


@pytest.mark.parametrize("static_cache", [False, True])
def test_greedy_responses_are_those_of_the_cpu(tiny, static_cache):
    there = copy.deepcopy(tiny).to("cuda")
    greedy = Sampling(12, temperature=0)
    groups = [
        HFEngine(Policy(model), {1}, 0, 64, static).generate(Request(PROMPTS, [[0]] * 3, greedy))
        for model, static in ((tiny, False), (there, static_cache))
    ]
    assert [[c.tokens for c in g] for g in groups[0]] == [[c.tokens for c in g] for g in groups[1]]


def test_attention_builds_no_plan_for_each_length(tiny):
    model = copy.deepcopy(tiny).to("cuda", torch.bfloat16)  # a dtype that cuDNN's attention takes
    loading.set_up_torch(1)
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
        HFEngine(Policy(model), {1}, 0, 64).generate(Request(PROMPTS, [[0, 1]] * 3, Sampling(4)))
    names = {event.key for event in profile.key_averages()}
    assert "aten::scaled_dot_product_attention" in names
    assert not any("cudnn" in name for name in names)


@pytest.mark.parametrize("name", algorithms())
def test_a_step_is_that_of_the_cpu(tiny, name):
    prompted = [PromptedProblem(Problem(f"p{len(p)}", "", (), ()), tuple(p)) for p in PROMPTS]
    engine = HFEngine(Policy(tiny), {1}, 0, 64)
    samples = rewarded(prompted, generate_responses(engine, PROMPTS, 4, Sampling(8)))
    here = learner_of(algorithms()[name], Policy(tiny), 0)
    there = learner_of(algorithms()[name], Policy(copy.deepcopy(tiny).to("cuda")), 0)
    expected, found = here.update(samples, 4, None), there.update(samples, 4, None)
    assert found == pytest.approx(expected, rel=1e-3, abs=1e-4)


def test_the_gpus_peak_is_measured(tiny):
    mark = PeakMemory()
    held = torch.ones(2**22, device="cuda")
    assert mark.columns()["memory/gpu0_peak_mb"] >= held.nbytes / 2**20


def test_what_an_earlier_run_left_behind_is_free():
    before = free_bytes(torch.device("cuda"))
    left = [torch.ones(2**28, device="cuda")]  # 1 GiB
    left.append(left)  # a cycle, as models and optimisers have
    del left
    assert free_bytes(torch.device("cuda")) >= before - 2**20
