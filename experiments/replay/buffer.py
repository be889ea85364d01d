"""The replay store: samples that are trained on again, or that others wrote.

It holds this run's own responses from the batch after theirs on, and, of earlier runs and of files,
those to a problem from the first time that its prompt comes. Rows are Arrow columns, which never
change; what does, uses and who is still there, stands beside them in arrays.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from random import Random
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
import torch

from envs.reward import RewardConfig
from experiments.config.schema import ReplayConfig
from experiments.errors import UserError
from experiments.replay.judgement_cache import JudgingCosts
from experiments.replay.sample_log import SCHEMA, samples_of, table_of
from experiments.sample import PromptedProblem, Sample
from experiments.seeds import stream

CHUNKS = 64  # batches of rows before they are joined
AGELESS = np.iinfo(np.int64).max  # version of a response that no weights of this run wrote


class Source(Protocol):
    """Samples that this run did not write."""

    digest: str  # another one where it holds others
    left_out: Counter[str]  # why samples are not used → how many, so far

    def samples_for(self, prompt: PromptedProblem) -> list[Sample]:
        """Those to one problem."""
        ...


class ReplayBuffer:
    """Draws samples to a prompt; forgets what is too old, used up, or beyond its capacity."""

    def __init__(
        self,
        config: ReplayConfig,
        reward: RewardConfig,
        version: Callable[[], int],
        charges: JudgingCosts,
        sources: Sequence[Source] = (),
    ) -> None:
        """`version`: optimiser steps that the weights to be trained have seen."""
        self.config, self.reward, self.version = config, reward, version
        self.charges, self.sources = charges, sources
        self.counts: Counter[str] = Counter()  # what was dropped and why, and what was missing
        self._seen: dict[str, None] = {}  # problems whose samples were asked of the sources
        self._codes: dict[str, int] = {}  # problem → its number in `_problem`
        self._next = 0
        self._hold(SCHEMA.empty_table(), np.empty(0, np.int64))

    def __len__(self) -> int:
        return int(self._alive.sum())

    def _hold(self, table: pa.Table, ids: np.ndarray) -> None:
        self._table, self._ids = table, ids
        self._uses = np.zeros(len(ids), np.int32)
        self._alive = np.ones(len(ids), bool)
        self._problem, self._version = self._problems_of(table), _versions_of(table)

    def _problems_of(self, table: pa.Table) -> np.ndarray:
        names = table["problem"].to_pylist()
        return np.array([self._codes.setdefault(n, len(self._codes)) for n in names], np.int32)

    def state_dict(self) -> dict[str, Any]:
        """All but the rows, which `tables` has; cheap enough for every step."""
        return {
            "ids": torch.from_numpy(self._ids.copy()),
            "uses": torch.from_numpy(self._uses.copy()),
            "alive": torch.from_numpy(self._alive.copy()),
            "next": self._next,
            "seen": list(self._seen),
            "counts": dict(self.counts),
            "sources": [(source.digest, dict(source.left_out)) for source in self.sources],
            "charges": self.charges.state_dict(),
        }

    def tables(self) -> dict[str, pa.Table]:
        """The rows; a table never changes, so this is no copy."""
        return {"replay": self._table}

    def load_state_dict(self, state: dict[str, Any], tables: dict[str, pa.Table]) -> None:
        """Back to what `state_dict` and `tables` held. Raises UserError where a source changed."""
        for source, (digest, left_out) in zip(self.sources, state["sources"], strict=True):
            if source.digest != digest:
                raise UserError(f"{source}: it has changed since the checkpoint; bring it back")
            source.left_out.clear()
            source.left_out.update(left_out)
        self._hold(tables["replay"], state["ids"].numpy())
        self._uses, self._alive = state["uses"].numpy(), state["alive"].numpy()
        self._next, self._seen = state["next"], dict.fromkeys(state["seen"])
        self.counts = Counter(state["counts"])
        self.charges.load_state_dict(state["charges"])

    def draw(self, prompt: PromptedProblem, count: int, *seed: object) -> list[Sample]:
        """At most `count` samples to this prompt, none twice; fewer where there are no more."""
        self._ask_sources(prompt)
        self._forget_old()
        code = self._codes.get(prompt.problem.name)
        if code is None or not count:
            rows = []
        else:
            found = np.flatnonzero(self._alive & (self._problem == code))
            rows = self._choose(found.tolist(), count, stream("replay", *seed))
        self.counts["missing"] += count - len(rows)
        table = self._table.take(pa.array(rows, pa.int64()))
        samples = samples_of(table, [prompt] * len(rows), self.reward)
        return [replace(s, replayed=int(self._ids[r])) for s, r in zip(samples, rows, strict=True)]

    def _choose(self, rows: list[int], count: int, rng: Random) -> list[int]:
        """By replay.sampling; `rows` are in the order of their arrival."""
        if self.config.sampling == "recent":
            return rows[::-1][:count]
        rng.shuffle(rows)
        if self.config.sampling == "uniform":
            return rows[:count]
        rewards = self._table["reward"].take(rows).to_pylist()
        levels = [
            [row for row, paid in zip(rows, rewards, strict=True) if paid == level]
            for level in sorted(set(rewards))
        ]
        rng.shuffle(levels)
        taken = [(turn, at) for at, level in enumerate(levels) for turn in range(len(level))]
        return [levels[at][turn] for turn, at in sorted(taken)[:count]]

    def add_batch(self, samples: Sequence[Sample], step: int) -> None:
        """A batch is about to be trained on: count what it uses, and hold what is new in it."""
        used = [s.replayed for s in samples if s.replayed is not None]
        self._uses += np.isin(self._ids, used)  # some may have made way since they were drawn
        self.charges.charge([s for s in samples if s.origin.source in ("run", "file")])
        if self.config.max_uses is not None:
            self._drop("used_up", self._uses >= self.config.max_uses)
        if self.config.own:
            self._add([sample for sample in samples if sample.fresh], step)

    def metrics(self) -> dict[str, float]:
        """What is there, and counts since the run began."""
        uses = float(self._uses[self._alive].mean()) if len(self) else 0.0
        held = {"size": len(self), "mean_uses": uses}
        names = ("missing", "too_old", "used_up", "beyond_capacity")
        left_out = sum(sum(source.left_out.values()) for source in self.sources)
        counted = {name: self.counts[name] for name in names} | {"left_out": left_out}
        return {f"replay/{name}": value for name, value in (held | counted).items()}

    def _ask_sources(self, prompt: PromptedProblem) -> None:
        if prompt.problem.name in self._seen:
            return
        self._seen[prompt.problem.name] = None
        for source in self.sources:
            self._add(source.samples_for(prompt), 0)

    def _add(self, samples: Sequence[Sample], step: int) -> None:
        if not samples:
            return
        new = table_of(samples, step)
        self._table = pa.concat_tables([self._table, new])
        if self._table["step"].num_chunks > CHUNKS:
            self._table = self._table.combine_chunks()
        ids = np.arange(self._next, self._next + len(new))
        self._next += len(new)
        self._ids = np.concatenate([self._ids, ids])
        self._uses = np.concatenate([self._uses, np.zeros(len(new), np.int32)])
        self._alive = np.concatenate([self._alive, np.ones(len(new), bool)])
        self._problem = np.concatenate([self._problem, self._problems_of(new)])
        self._version = np.concatenate([self._version, _versions_of(new)])
        beyond = len(self) - self.config.capacity
        if beyond > 0:
            oldest = np.zeros(len(self._ids), bool)
            oldest[np.flatnonzero(self._alive)[:beyond]] = True
            self._drop("beyond_capacity", oldest)

    def _forget_old(self) -> None:
        if self.config.max_age is not None:
            self._drop("too_old", self._version < self.version() - self.config.max_age)

    def _drop(self, why: str, rows: np.ndarray) -> None:
        """Counted; the memory is given back once a quarter of the rows is gone."""
        gone = rows & self._alive
        self.counts[why] += int(gone.sum())
        self._alive &= ~gone
        if len(self) < 0.75 * len(self._alive):
            stay = np.flatnonzero(self._alive)
            uses = self._uses[stay]
            self._hold(self._table.take(stay), self._ids[stay])
            self._uses = uses


def _versions_of(table: pa.Table) -> np.ndarray:
    """Of this run's weights that wrote each row."""
    own = np.array([source == "policy" for source in table["source"].to_pylist()], bool)
    versions = np.array([v or 0 for v in table["version"].to_pylist()], np.int64)
    return np.where(own, versions, AGELESS)
