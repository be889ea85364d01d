"""A rank generates for its share of the prompts, or releases memory if it has none."""

from types import SimpleNamespace

from experiments.distributed.torchrun_proxies import ShardedEngine
from experiments.engines.base import Sampling


class RecordingEngine:
    """An engine that records its calls."""

    def __init__(self):
        self.calls = []

    def generate(self, prompts, seeds, sampling, finished):
        self.calls.append(prompts)
        return [f"to {prompt}" for prompt in prompts]

    def release_memory(self):
        self.calls.append("release_memory")


def generated(rank, size, prompts):
    """Return what this rank generates for some prompts, and its engine's calls."""
    ranks = SimpleNamespace(rank=rank, size=size, targets={}, gather=lambda result: result)
    engine = RecordingEngine()
    sharded = ShardedEngine(ranks, "engine", engine, trained=None)
    groups, error = sharded.generate_shard(prompts, [[0]] * len(prompts), Sampling(4))
    assert error is None
    return groups, engine.calls


def test_rank_i_of_n_generates_for_every_nth_prompt():
    assert generated(1, 2, ["a", "b", "c", "d"]) == (["to b", "to d"], [["b", "d"]])


def test_a_rank_without_prompts_releases_its_engines_memory():
    assert generated(2, 3, ["a", "b"]) == ([], ["release_memory"])
