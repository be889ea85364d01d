"""What a rank does with its part of the prompts, and without one."""

from types import SimpleNamespace

from experiments.distributed.torchrun_proxies import ShardedEngine
from experiments.engines.base import Sampling


class Told:
    """An engine that remembers what it was asked to do."""

    def __init__(self):
        self.asked = []

    def generate(self, prompts, seeds, sampling, finished):
        self.asked.append(prompts)
        return [f"to {prompt}" for prompt in prompts]

    def rest(self):
        self.asked.append("rest")


def written(rank, size, prompts):
    """What this rank gives for so many prompts, and what its engine was asked."""
    ranks = SimpleNamespace(rank=rank, size=size, targets={}, gather=lambda found: found)
    engine = Told()
    spread = ShardedEngine(ranks, "engine", engine, trained=None)
    found, error = spread.generate_shard(prompts, [[0]] * len(prompts), Sampling(4))
    assert error is None
    return found, engine.asked


def test_each_rank_writes_every_so_many_th_prompt():
    assert written(1, 2, ["a", "b", "c", "d"]) == (["to b", "to d"], [["b", "d"]])


def test_a_rank_without_prompts_lets_its_engine_rest():
    assert written(2, 3, ["a", "b"]) == ([], ["rest"])
