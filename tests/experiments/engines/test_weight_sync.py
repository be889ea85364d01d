"""Weight sync: at a constant lag, in a saw-tooth, after a resume, and when it fails."""

import copy

import pytest
import torch

from envs.problem import Judgement, Problem, Verdict
from experiments.engines.hf import HFEngine
from experiments.engines.weight_sync import WeightSync
from experiments.policy.loading import fingerprint
from experiments.policy.policy import Policy, frozen_copy
from experiments.sample import Origin, PromptedProblem, Sample
from tests.compose import train_config

STEPS = 9


def sync_of(model, **options):
    config, policy = train_config(**options), Policy(model)
    engine = HFEngine(frozen_copy(policy) if config.keeps_rollout_copy else policy, {1}, 0, 64)
    return WeightSync(engine, policy, config)


def train(policy):
    head = policy.model.lm_head.weight
    with torch.no_grad():
        head.add_(torch.randn_like(head))
    policy.version += 1


def run(sync, steps=range(1, STEPS + 1)):
    """Train → fingerprints of the rollout and of the trained weights of each batch, and lags."""
    generated, trained, lags = [], [], []
    for step in steps:
        lags.append(sync.begin(step))
        generated.append(fingerprint(sync.engine.model))
        trained.append(fingerprint(sync.policy.model))
        train(sync.policy)
        sync.follow(step)
    return generated, trained, lags


@pytest.mark.parametrize("lag", [0, 1, 3])
def test_with_a_lag_the_rollout_weights_are_the_learners_of_so_many_batches_before(tiny, lag):
    generated, trained, lags = run(sync_of(tiny, lag=lag))
    assert len(set(trained)) == STEPS
    assert generated == [trained[max(0, i - lag)] for i in range(STEPS)]
    assert lags == [min(i, lag) for i in range(STEPS)]


def test_synced_once_in_n_batches_the_lag_is_a_saw_tooth(tiny):
    generated, trained, lags = run(sync_of(tiny, sync_every=4))
    assert generated == [trained[i - i % 4] for i in range(STEPS)]
    assert lags == [i % 4 for i in range(STEPS)]


@pytest.mark.parametrize("options", [{"lag": 1}, {"lag": 3}, {"sync_every": 4}, {}])
def test_a_batchs_weights_are_available_as_soon_as_they_are_trained(tiny, options):
    sync, announced, generated = sync_of(tiny, **options), {}, []
    for step in range(1, STEPS + 1):
        for batch in range(step, STEPS + 1):
            if (weights := sync.weights_of(batch, step)) is not None:
                seen = announced.setdefault(batch, (step, version_and_sum(weights)))
                assert seen[1] == version_and_sum(weights)
        sync.begin(step)
        generated.append(version_and_sum(sync.engine.policy))
        train(sync.policy)
        sync.follow(step)
    assert [announced[batch][1] for batch in range(1, STEPS + 1)] == generated
    # a batch can start once its weights are trained, which is so many batches before its turn
    first = [step for step, _ in announced.values()]
    assert first == [max(1, version + 1) for version, _ in generated]


def version_and_sum(weights):
    """Of a policy, or of a snapshot."""
    sums = [float(tensor.detach().double().sum()) for tensor in weights.plain_weights()]
    return weights.version, sums


@pytest.mark.parametrize("options", [{"lag": 3}, {"sync_every": 4}, {}])
def test_weight_sync_resumes_from_its_state(tiny, options):
    torch.manual_seed(1)
    expected, *_ = run(sync_of(copy.deepcopy(tiny), **options))
    torch.manual_seed(1)
    sync = sync_of(tiny, **options)
    first, *_ = run(sync, range(1, 6))
    again = sync_of(copy.deepcopy(tiny), **options)
    # The learner's state, of which its version is a part, is restored before.
    again.policy.version = sync.policy.version
    again.load_state_dict(sync.state_dict())
    second, *_ = run(again, range(6, STEPS + 1))
    assert first + second == expected


def sample(engine, step):
    problem = PromptedProblem(Problem("p", "", (), ()), (2, 7))
    judgement = Judgement(Verdict.WRONG_ANSWER, 0, 1, 1, "")
    origin = Origin("policy", "run", step, engine.version)
    return Sample(problem, (5, 1), (-1.0, -1.0), judgement, 0.0, False, origin)


@pytest.mark.parametrize("options", [{"lag": 1}, {"sync_every": 2}])
def test_a_sample_of_unexpected_weights_is_an_error(tiny, options, monkeypatch):
    sync = sync_of(tiny, **options)
    for step in range(1, 6):
        sync.begin(step)
        sync.check([sample(sync.engine, step)])
        train(sync.policy)
        sync.follow(step)
    monkeypatch.setattr(HFEngine, "sync", lambda self, weights: None)  # a sync that does nothing
    for step in range(6, 9):
        sync.begin(step)
        train(sync.policy)
        sync.follow(step)
    with pytest.raises(RuntimeError, match="the hf engine does not have the weights"):
        sync.check([sample(sync.engine, 8)])
