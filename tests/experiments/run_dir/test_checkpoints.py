"""Checkpoints: believed only when they are as they were written."""

import errno
import json

import pyarrow as pa
import pytest
import torch

from envs.problem import Judgement, Verdict
from experiments.errors import one_line
from experiments.run_dir import checkpoints

JUDGEMENT = Judgement(Verdict.WRONG_ANSWER, 1, 3, 2, "print(1)", 0.25, "first difference")


def saved(run, step):
    folder = run / "checkpoints" / f"step-{step}"
    folder.mkdir(parents=True)
    weights = torch.full((50_000,), step / 3)
    known = {("hash", "digest"): JUDGEMENT}
    state = {"step": step, "tensors": {"weights": weights}, "known": known, "row": None}
    checkpoints.write(folder, state, {"replay": pa.table({"step": [step]})})
    return folder


def test_what_is_read_is_what_was_written(tmp_path):
    folder = saved(tmp_path, 4)
    state = checkpoints.read(folder)
    assert state["known"] == {("hash", "digest"): JUDGEMENT}
    assert state["folder"] == folder and "tensors" not in state
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
    "cut in half": (cut, "state.pt does not have the hash"),
    "one bit": (flip, "state.pt does not have the hash"),
    "no table": (lambda folder: (folder / "replay.arrow").unlink(), "replay.arrow is missing"),
    "another table": (
        lambda folder: (folder / "replay.arrow").write_text(""),
        "replay.arrow does not have the hash",
    ),
    "no state": (lambda folder: (folder / "state.pt").unlink(), "state.pt is missing"),
    "seal cut": (lambda folder: (folder / "state.json").write_text('{"st'), "JSONDecodeError"),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_one_is_passed_over_with_a_line(damage, tmp_path):
    harm, told = DAMAGES[damage]
    last = [saved(tmp_path, step) for step in (2, 4, 10)][-1]
    harm(last)
    said = []
    assert checkpoints.latest(tmp_path, said.append)["step"] == 4
    if damage != "seal cut":  # that one tells no step: it is the last to be tried
        (line,) = said
        assert line.startswith(f"{last}: damaged ({told}")
    with pytest.raises(checkpoints.Damaged, match=told):
        checkpoints.read(last)


def test_without_a_whole_one_there_is_none(tmp_path):
    cut(saved(tmp_path, 2))
    said = []
    assert checkpoints.latest(tmp_path, said.append) is None
    (line,) = said
    assert "damaged" in line


def test_a_hidden_one_was_not_finished(tmp_path):
    folder = saved(tmp_path, 2)
    folder.rename(folder.with_name(".step-2"))
    assert checkpoints.latest(tmp_path, print) is None


def test_a_state_runs_no_code_of_whoever_wrote_it(tmp_path):
    class Code:
        def __reduce__(self):
            return print, ("run",)

    folder = tmp_path / "checkpoints" / "step-1"
    folder.mkdir(parents=True)
    checkpoints.write(folder, {"step": 1, "code": Code()}, {})
    with pytest.raises(checkpoints.Damaged, match="UnpicklingError"):
        checkpoints.read(folder)


def test_a_full_disk_is_called_that_and_leaves_no_seal(tmp_path):
    (tmp_path / "state.pt").symlink_to("/dev/full")
    with pytest.raises(OSError) as full:
        checkpoints.write(tmp_path, {"step": 1, "weights": torch.zeros(50_000)}, {})
    assert full.value.errno == errno.ENOSPC
    assert one_line(full.value).startswith("the disk is full")
    assert not (tmp_path / "state.json").exists()


def test_the_seal_tells_the_step(tmp_path):
    assert json.loads((saved(tmp_path, 7) / "state.json").read_text())["step"] == 7
