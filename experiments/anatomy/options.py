"""The keys of `make anatomy`."""

from __future__ import annotations

from dataclasses import dataclass

from pydantic import NonNegativeInt, PositiveInt


@dataclass
class Options:
    """The command line."""

    out: str = "docs/results/anatomy.md"  # the page
    output_dir: str = "outputs"  # folder of the run that gives the policies
    only: str | None = None  # some objectives, with commas between them; by default all
    half: PositiveInt = 10  # steps of the half-trained policy
    collapsed: PositiveInt = 70  # steps of the nearly collapsed policy
    lag: PositiveInt = 10  # steps between a stale batch and the policy
    seeds: PositiveInt = 2  # batches of each policy
    prompts: PositiveInt = 16  # of a batch
    group: PositiveInt = 8  # responses to each prompt
    pool: PositiveInt = 32  # responses to each prompt, from which the hand-made groups are taken
    made: PositiveInt = 2  # prompts of the hand-made groups
    seed: NonNegativeInt = 41  # of the run and the batches
    workers: PositiveInt = 2  # processes, which share the policies
