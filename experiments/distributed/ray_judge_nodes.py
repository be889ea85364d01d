"""`sandbox.nodes`: this process writes and learns, and each node of a Ray cluster judges."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from experiments.distributed.ray_cluster import Connection
from experiments.errors import UserError

if TYPE_CHECKING:
    from experiments.config.schema import RunConfig
    from experiments.rollout.environments import Environments


@contextmanager
def judges_on_nodes(config: RunConfig) -> Iterator[Environments]:
    """A judge on each node that has a CPU of Ray's counting, with a sandbox. Raises UserError."""
    address = config.sandbox.nodes
    connection = Connection("sandbox.nodes", address)
    try:
        from experiments.distributed.ray_actor_pool import ActorPool
        from experiments.distributed.ray_judge import RayJudge, SittingJudge, environments_of

        starts = _starts(address)
        given = (f"sandbox.nodes={address}", connection.alive)
        crew = ActorPool("judges", len(starts), lambda at: starts[at].remote(), *given)
        kind_of = lambda told: SittingJudge if told["sits"] else RayJudge  # noqa: E731
        with environments_of(crew, config, kind_of) as made:
            yield made
    finally:
        connection.stop()


def _starts(address: str) -> list[Any]:
    """What makes the judge of each node; another node's takes its place if the node has gone."""
    import ray
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    from experiments.distributed.ray_actors import JudgeActor

    judge = ray.remote(JudgeActor)
    nodes = [
        NodeAffinitySchedulingStrategy(node["NodeID"], soft=True)
        for node in ray.nodes()
        if node["Alive"] and node["Resources"].get("CPU", 0) >= 1
    ]
    if not nodes:
        raise UserError(
            f"sandbox.nodes={address}: no node of the Ray cluster has a CPU to judge with; let "
            "some join with `ray start --address=...`"
        )
    return [judge.options(num_cpus=1, scheduling_strategy=node) for node in nodes]
