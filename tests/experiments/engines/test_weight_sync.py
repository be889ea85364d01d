"""Which weights write: at a constant lag, in a saw-tooth, after a restart; and where it fails."""

import copy

import pytest
import torch

from envs.problem import Judgement, Problem, Verdict
from experiments.config.schema import TrainConfig
from experiments.engines.hf import HFEngine
from experiments.engines.weight_sync import WeightSync
from experiments.policy.loading import fingerprint, frozen_copy
from experiments.policy.weights import weights_changed, weights_version
from experiments.sample import Origin, PromptedProblem, Sample

STEPS = 9


def writer_of(model, **options):
    config = TrainConfig(**options)
    engine = HFEngine(frozen_copy(model) if config.stale else model, {1}, 0, 64)
    return WeightSync(engine, model, config)


def train(model):
    with torch.no_grad():
        model.lm_head.weight.add_(torch.randn_like(model.lm_head.weight))
    weights_changed(model)


def run(model, writer, steps=range(1, STEPS + 1)):
    """Trains; → fingerprints of what wrote each batch and of what was trained before it, lags."""
    wrote, trained, lags = [], [], []
    for step in steps:
        lags.append(writer.begin(step))
        wrote.append(fingerprint(writer.engine.model))
        trained.append(fingerprint(model))
        train(model)
        writer.follow(step)
    return wrote, trained, lags


@pytest.mark.parametrize("lag", [0, 1, 3])
def test_at_a_lag_the_writers_weights_are_the_learners_of_so_many_batches_before(tiny, lag):
    wrote, trained, lags = run(tiny, writer_of(tiny, lag=lag))
    assert len(set(trained)) == STEPS
    assert wrote == [trained[max(0, i - lag)] for i in range(STEPS)]
    assert lags == [min(i, lag) for i in range(STEPS)]


def test_synced_once_in_n_batches_the_lag_is_a_saw_tooth(tiny):
    wrote, trained, lags = run(tiny, writer_of(tiny, sync_every=4))
    assert wrote == [trained[i - i % 4] for i in range(STEPS)]
    assert lags == [i % 4 for i in range(STEPS)]


@pytest.mark.parametrize("options", [{"lag": 1}, {"lag": 3}, {"sync_every": 4}, {}])
def test_what_is_to_write_a_batch_is_told_as_soon_as_it_is_trained(tiny, options):
    writer, told, wrote = writer_of(tiny, **options), {}, []
    for step in range(1, STEPS + 1):
        for batch in range(step, STEPS + 1):
            if (weights := writer.weights_of(batch, step)) is not None:
                seen = told.setdefault(batch, (step, version_and_sum(weights)))
                assert seen[1] == version_and_sum(weights)
        writer.begin(step)
        wrote.append(version_and_sum(writer.engine.model))
        train(tiny)
        writer.follow(step)
    assert [told[batch][1] for batch in range(1, STEPS + 1)] == wrote
    # a batch may be begun once its writer is trained, which is so many batches before its turn
    first = [step for step, _ in told.values()]
    assert first == [max(1, version + 1) for version, _ in wrote]


def version_and_sum(weights):
    """Whatever holds them: a model, or a snapshot without names."""
    return weights_version(weights), [
        float(p.detach().double().sum()) for p in weights.parameters()
    ]


@pytest.mark.parametrize("options", [{"lag": 3}, {"sync_every": 4}, {}])
def test_a_writer_goes_on_from_its_state(tiny, options):
    torch.manual_seed(1)
    whole, writer = copy.deepcopy(tiny), writer_of(tiny, **options)
    expected, *_ = run(whole, writer_of(whole, **options))
    torch.manual_seed(1)
    first, *_ = run(tiny, writer, range(1, 6))
    again = writer_of(copy.deepcopy(tiny), **options)
    again.load_state_dict(writer.state_dict())
    second, *_ = run(again.model, again, range(6, STEPS + 1))
    assert first + second == expected


def sample(engine, step):
    problem = PromptedProblem(Problem("p", "", (), ()), (2, 7))
    judgement = Judgement(Verdict.WRONG_ANSWER, 0, 1, 1, "")
    origin = Origin("policy", "run", step, engine.version)
    return Sample(problem, (5, 1), (-1.0, -1.0), judgement, 0.0, False, origin)


@pytest.mark.parametrize("options", [{"lag": 1}, {"sync_every": 2}, {}])
def test_a_sample_of_other_weights_than_believed_is_an_error(tiny, options, monkeypatch):
    writer = writer_of(tiny, **options)
    samples = []
    for step in range(1, 6):
        writer.begin(step)
        samples.append(sample(writer.engine, step))
        writer.check(samples)  # earlier batches' samples are still believed
        train(tiny)
        writer.follow(step)
    monkeypatch.setattr(HFEngine, "sync", lambda self, model: None)  # a sync that does nothing
    train(tiny)
    for step in range(6, 9):
        writer.begin(step)
        if not options:  # the engine writes with weights that move under it
            train(tiny)
        samples = [sample(writer.engine, step)]
        if options and step == 6:
            writer.check(samples)
        train(tiny)
        writer.follow(step)
    with pytest.raises(RuntimeError, match="the hf engine does not hold what it was given"):
        writer.check(samples)
