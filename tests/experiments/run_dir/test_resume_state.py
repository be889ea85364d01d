"""Restored parts own their tensors: they do not map the checkpoint."""

import copy

import torch

from algorithms import make
from experiments.engines.hf import HFEngine
from experiments.engines.weight_sync import WeightSync
from experiments.learner.learner import Learner
from experiments.policy.loading import frozen_copy
from experiments.policy.policy import Policy
from experiments.run_dir import checkpoints
from experiments.run_dir.ledger import Ledger
from tests.compose import train_config
from tests.experiments.learner.learning import GROUP, REWARDS, samples_from


def parts(model):
    """Return a learner and a weight sync with lag 2."""
    train = train_config(lag=2)
    algorithm = make("spo", learning_rate=1e-3)
    learner = Learner(Policy(copy.deepcopy(model)), 0, algorithm, train, 10, Ledger())
    engine = HFEngine(frozen_copy(Policy(model)), {1}, 0, 64)
    return learner, WeightSync(engine, learner.policy, train)


def test_restored_parts_map_no_file(tiny, tmp_path):
    learner, weight_sync = parts(tiny)
    samples = samples_from(tiny, REWARDS)
    for step in (1, 2, 3):
        learner.update(samples, GROUP, None)
        weight_sync.follow(step)
    tensors = {"learner": learner.state_dict(), "weight_sync": weight_sync.state_dict()}
    checkpoints.write(tmp_path, {"step": 3, "tensors": tensors}, {})
    again, behind = parts(tiny)
    again.load_from(tmp_path)
    behind.load_from(tmp_path)
    with open("/proc/self/maps") as maps:
        assert str(tmp_path) not in maps.read()
    for step in (4, 5):
        for one, other in ((learner, weight_sync), (again, behind)):
            one.update(samples, GROUP, None)
            other.follow(step)
    for one, other in (
        (learner.model, again.model),
        (weight_sync.engine.model, behind.engine.model),
    ):
        for left, right in zip(one.parameters(), other.parameters(), strict=True):
            assert torch.equal(left, right)
