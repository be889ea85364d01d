"""What ranks do when one of them cannot go on: the main one tells why, and the others end."""

import os

import pytest
import torch
import torch.multiprocessing as mp

from experiments.errors import UserError
from experiments.runtime.torchrun import Torchrun
from tests.experiments.runtime.test_torchrun import free_port, joined


class Part:
    """What both ranks have of a run."""

    def __init__(self, ranks):
        self.ranks = ranks
        ranks.targets["part"] = self

    def asks(self, value):
        """Something of which the main rank has the middle."""
        return (
            self.ranks.broadcast(value) if self.ranks.is_rank_zero else self.ranks.broadcast(None)
        )

    def interrupted(self):
        raise KeyboardInterrupt

    def both(self):
        return self.ranks.gather(self.ranks.rank)


def asked(ranks, value):
    return ranks.call("part", "asks", None, own_args=(value,))


def refuse(error):
    raise error


def work(rank, size, port, folder):
    ranks = joined(rank, size, port)
    Part(ranks)
    if not ranks.is_rank_zero:
        ranks.start_error = "no such model"
        ranks.serve()
        ranks.leave()
        os.mknod(f"{folder}/ended")
        return
    with pytest.raises(UserError, match="rank 1: no such model"):
        ranks.raise_start_errors()
    assert asked(ranks, lambda: torch.ones(2)).tolist() == [1, 1]
    for error in (UserError("the cluster has ended"), OSError(28, "no space")):
        with pytest.raises(type(error)):
            asked(ranks, lambda error=error: refuse(error))
        assert ranks.call("part", "both") == [0, 1]  # while the other waits for its value
    ranks.stop()
    os.mknod(f"{folder}/stopped")


def test_what_fails_while_the_others_wait_leaves_them_at_hand(tmp_path):
    mp.start_processes(work, (2, free_port(), tmp_path), nprocs=2, start_method="fork")
    assert {path.name for path in tmp_path.iterdir()} == {"ended", "stopped"}


def alone(rank, size, port, folder):
    ranks = joined(rank, size, port, Torchrun)
    Part(ranks)
    with pytest.raises(KeyboardInterrupt):
        ranks.call("part", "interrupted")
    with pytest.raises(RuntimeError, match="out of step"):
        ranks.call("part", "both")
    ranks.stop()
    os.mknod(f"{folder}/stopped")


def test_after_an_interrupt_in_the_midst_of_a_call_nobody_is_called(tmp_path):
    mp.start_processes(alone, (1, free_port(), tmp_path), nprocs=1, start_method="fork")
    assert (tmp_path / "stopped").exists()
