"""Checkpoints: used only when they are as they were written, and not mapped by restored parts."""

import copy
import errno
import shutil
from collections import namedtuple

import pyarrow as pa
import pytest
import torch

from algorithms import make
from envs.problem import Judgement, Verdict
from experiments.engines.hf import HFEngine
from experiments.engines.weight_sync import WeightSync
from experiments.errors import one_line
from experiments.learner.learner import Learner
from experiments.policy.policy import Policy, frozen_copy
from experiments.run_dir import checkpoints
from experiments.run_dir.ledger import Ledger
from tests.compose import train_config
from tests.experiments.learner.learning import GROUP, REWARDS, samples_from

JUDGEMENT = Judgement(Verdict.WRONG_ANSWER, 1, 3, 2, "print(1)", 0.25, "first difference")


def saved(run, step, **more):
    folder = run / "checkpoints" / f"step-{step}"
    folder.mkdir(parents=True)
    weights = torch.full((50_000,), step / 3)
    known = {("hash", "digest"): JUDGEMENT}
    state = {"step": step, "tensors": {"weights": weights}, "known": known, "row": None} | more
    checkpoints.write(folder, state, {"replay": pa.table({"step": [step]})})
    return folder


def test_what_is_read_is_what_was_written(tmp_path):
    folder = saved(tmp_path, 4)
    state = checkpoints.latest(tmp_path, pytest.fail)
    assert state["known"] == {("hash", "digest"): JUDGEMENT}
    assert state["folder"] == folder and "tensors" not in state and state["step"] == 4
    assert torch.equal(checkpoints.tensors(folder)["weights"], torch.full((50_000,), 4 / 3))
    assert state["tables"]["replay"]["step"].to_pylist() == [4]


def cut(folder):
    file = folder / "state.pt"
    file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])


def flip(folder):
    file = folder / "state.pt"
    held = bytearray(file.read_bytes())
    held[len(held) // 2] ^= 1
    file.write_bytes(held)


DAMAGES = {
    "cut in half": cut,
    "one bit": flip,
    "no state": lambda folder: (folder / "state.pt").unlink(),
    "seal cut": lambda folder: (folder / "state.json").write_text('{"st'),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_one_is_skipped_with_a_line(damage, tmp_path):
    last = [saved(tmp_path, step) for step in (2, 4, 10)][-1]
    DAMAGES[damage](last)
    said = []
    assert checkpoints.latest(tmp_path, said.append)["step"] == 4
    # without a step in its seal it is the last to be tried
    assert [line.startswith(f"{last}: damaged") for line in said] == [True] * (damage != "seal cut")
    for step in (2, 4):
        cut(tmp_path / "checkpoints" / f"step-{step}")
    assert checkpoints.latest(tmp_path, said.append) is None


def test_a_state_runs_no_code_of_whoever_wrote_it(tmp_path):
    class Code:
        def __reduce__(self):
            return print, ("run",)

    saved(tmp_path, 1, code=Code())
    said = []
    assert checkpoints.latest(tmp_path, said.append) is None
    assert "UnpicklingError" in said[0]


def test_a_full_disk_is_called_that_and_leaves_no_seal(tmp_path, monkeypatch):
    Usage = namedtuple("Usage", "free")
    monkeypatch.setattr(shutil, "disk_usage", lambda _: Usage(0))
    (tmp_path / "state.pt").symlink_to("/dev/full")
    with pytest.raises(OSError) as full:
        checkpoints.write(tmp_path, {"step": 1, "weights": torch.zeros(50_000)}, {})
    assert full.value.errno == errno.ENOSPC
    assert one_line(full.value).startswith("the disk is full")
    assert not (tmp_path / "state.json").exists()


def parts(model):
    """Return a learner and a weight sync with lag 2."""
    train = train_config(lag=2)
    algorithm = make("spo", learning_rate=1e-3, q0="group_soft")
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
