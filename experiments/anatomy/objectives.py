"""The compared objectives: every algorithm at its defaults, and variants."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import algorithms
from algorithms.base import Algorithm
from experiments.sample import Sample


@dataclass(frozen=True)
class Objective:
    """An algorithm with options, and the data that it is given.

    own: the policy's responses. mixed: the second half of each group is offline programs. replayed:
    the second half counts as replayed.
    """

    algo: str
    options: Mapping[str, Any] = field(default_factory=dict)
    data: Literal["own", "mixed", "replayed"] = "own"
    low: float = 0.0  # rewards run from `low` to `high`
    high: float = 1.0
    # steps from the reference to the policy, of a reference that moves; None: the base
    reference_age: int | None = None

    def make(self) -> Algorithm:
        return algorithms.make(self.algo, self.high, **self.options)

    def samples(self, own: Sequence[Sample], mixed: Sequence[Sample], size: int) -> list[Sample]:
        """Return its form of a batch of groups of `size`."""
        chosen = list(mixed if self.data == "mixed" else own)
        if self.data == "replayed":
            for row, sample in enumerate(chosen):
                chosen[row] = sample if row % size < size // 2 else replace(sample, replayed=row)
        scale = self.high - self.low
        return [replace(s, reward=self.low + scale * (s.reward or 0.0)) for s in chosen]


def reference_ages() -> set[int]:
    """Return the ages of the references that move."""
    ages = (objective.reference_age for objective in objectives().values())
    return {age for age in ages if age is not None}


def objectives() -> dict[str, Objective]:
    """Return every algorithm at its defaults, and variants of SPO, GRPO and PPO, by name."""
    data: dict[str, Any] = {"": "own", "offline_share": "mixed", "replay_share": "replayed"}
    found = {
        name: Objective(name, data=data[algorithms.make(name).needs.share])
        for name in algorithms.names()
    }
    for beta in (0.03, 0.3, 0.5, 1.0):
        found[f"spo β={beta:g}"] = Objective("spo", {"beta": beta})
    for beta in (0.03, 0.1, 0.5, 1.0):
        found[f"spo squared β={beta:g}"] = Objective("spo", {"beta": beta, "loss": "squared"})
    found["spo advantage"] = Objective("spo", {"loss": "advantage"})
    found["spo monte_carlo"] = Objective("spo", {"q0": "monte_carlo"})
    found["spo squared monte_carlo"] = Objective("spo", {"q0": "monte_carlo", "loss": "squared"})
    found["spo half-online"] = Objective("spo", data="mixed")
    for low, high in ((-1.0, 0.0), (-1.0, 1.0)):
        found[f"spo r∈{{{low:g},{high:g}}}"] = Objective("spo", low=low, high=high)
    found["spo exponent=q"] = Objective("spo", {"exponent": "q"})
    found["spo exponent=q r∈{-1,1}"] = Objective("spo", {"exponent": "q"}, low=-1.0)
    found["spo reference=now"] = Objective("spo", reference_age=0)
    found["spo reference=10 steps ago"] = Objective("spo", reference_age=10)
    found["spo slope_width=0.01"] = Objective("spo", {"slope_width": 0.01})
    found["ppo critic=none"] = Objective("ppo", {"critic": "none"})
    for name in ("grpo", "ppo"):
        found[f"{name} kl=0"] = Objective(name, {"kl_coef": 0.0})
    return found
