"""The estimate of a run's memory, against what is really allocated, and what it says."""

from dataclasses import replace
from pathlib import Path

import hydra
import pytest

from experiments.config import parse
from experiments.errors import UserError
from experiments.memory import Shape, check, estimate, free_bytes
from experiments.picks import pick
from tests.experiments.test_learner import ALGORITHMS, GROUP, REWARDS, learner_of, samples_from

CONF = Path(__file__).resolve().parents[2] / "conf"
LLAMA_8B = Shape(8_030_261_248, 32, 4096, 14336, 2048, 128_256)


def config(*overrides):
    with hydra.initialize_config_dir(str(CONF), version_base="1.3"):
        return parse(hydra.compose("config", overrides=list(overrides)))


@pytest.mark.parametrize("name", ["spo", "ppo-separate", "grpo"])
def test_what_is_held_is_what_the_learner_allocates(tiny, name):
    learner = learner_of(tiny, ALGORITHMS[name])
    learner.update(samples_from(tiny, REWARDS), GROUP, None)
    models = [learner.model, learner.reference, learner.critic]
    tensors = [p for model in models if model is not None for p in model.parameters()]
    tensors += [p.grad for p in tensors if p.grad is not None]
    for moments in learner.optimiser.state.values():
        tensors += [moments["exp_avg"], moments["exp_avg_sq"]]
    allocated = sum(tensor.numel() * tensor.element_size() for tensor in tensors)
    found = estimate(Shape.of(tiny), config("algo=spo"), ALGORITHMS[name].needs)
    # The critic's own head is not counted, and its unused output layer has no gradient.
    assert sum(found.held.values()) == pytest.approx(allocated, rel=0.06)


def test_staleness_costs_a_copy(tiny):
    needs = ALGORITHMS["spo"].needs
    fresh, stale = (
        estimate(Shape.of(tiny), config(f"train.sync_every={n}"), needs).held for n in (1, 10)
    )
    assert sum(stale.values()) - sum(fresh.values()) == fresh["weights"]


def test_training_and_sampling_are_not_there_together(tiny):
    found = estimate(Shape.of(tiny), config(), ALGORITHMS["spo"].needs)
    held = sum(found.held.values())
    training = found.micro_batch * found.training + found.chunk
    assert found.total == held + max(training, found.batch_size * found.sampling)


def test_what_does_not_fit_is_said_with_what_would():
    needs = ALGORITHMS["spo"].needs
    taken = pick(config("task=taco", "model=llama3_8b"), "cuda")
    with pytest.raises(UserError, match=r"model of less than about 2.* B parameters fits"):
        check(LLAMA_8B, taken, needs, "cuda", 24 * 10**9)
    with pytest.raises(UserError) as error:
        check(LLAMA_8B, taken, needs, "cuda", 110 * 10**9)
    said = str(error.value)
    assert "weights 16.06" in said and "reference 16.06" in said and "110.0 GB are free" in said
    advice = said.rpartition("; ")[2]
    rows = int(advice.split("train.micro_batch=")[1].split()[0])
    batch = int(advice.split("engine.batch_size=")[1].split()[0])
    smaller = replace(
        taken,
        train=replace(taken.train, micro_batch=rows),
        engine=replace(taken.engine, batch_size=batch),
    )
    assert check(LLAMA_8B, smaller, needs, "cuda", 110 * 10**9).total <= 110 * 10**9


def test_a_large_model_wants_a_gpu_or_a_word():
    needs = ALGORITHMS["spo"].needs
    taken = pick(config("task=taco", "model=llama3_8b"), "cuda")
    with pytest.raises(UserError, match=r"8\.0 B parameters and no GPU here"):
        check(LLAMA_8B, taken, needs, "cpu", 10**13)
    asked = replace(taken, model=replace(taken.model, device="cpu"))
    assert check(LLAMA_8B, asked, needs, "cpu", 10**13).total > 60 * 10**9


def test_free_memory_is_between_nothing_and_all():
    pages = next(
        line for line in Path("/proc/meminfo").read_text().splitlines() if "MemTotal" in line
    )
    assert 10**8 < free_bytes("cpu") <= int(pages.split()[1]) * 1024
