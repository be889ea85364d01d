"""The replay buffer: samples that are trained on again, and samples of other runs and models.

It holds this run's own responses from the batch after theirs on. Samples of earlier runs and of
files enter when their problem's prompt first comes. The rows are immutable Arrow columns; uses and
liveness are in a table beside them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from random import Random
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import torch

from envs.reward import RewardConfig
from experiments.config.schema import ReplayConfig
from experiments.errors import UserError
from experiments.replay.programs import JudgingCosts, ProgramFile
from experiments.replay.sample_log import SCHEMA, EarlierRun, prompt_digest, samples_of, table_of
from experiments.sample import PromptedProblem, Sample, stream

MAX_CHUNKS = 64  # added batches before their columns are joined
AGELESS = np.iinfo(np.int64).max  # version of a response that this run did not generate


@dataclass(eq=False)
class ReplayBuffer:
    """Draw samples for a prompt; drop those too old, used up or beyond capacity."""

    config: ReplayConfig
    reward: RewardConfig
    version: Callable[[], int]  # optimiser steps of the weights to be trained
    costs: JudgingCosts
    sources: Sequence[EarlierRun | ProgramFile] = ()

    def __post_init__(self) -> None:
        self.counts: Counter[str] = Counter()  # dropped samples by reason, and missing ones
        self._seen: dict[str, None] = {}  # problems whose sources were read
        self._codes: dict[str, int] = {}  # problem → its code
        self._next = 0
        self.load_rows(SCHEMA.empty_table())

    def __len__(self) -> int:
        return int(self._rows["alive"].sum())

    def _facts(self, table: pa.Table, ids: np.ndarray) -> pd.DataFrame:
        """Return what is known of each row: its id, its uses, and whether it is still held.

        Also its problem as a code, and the version of this run's weights behind it.
        """
        names = table["problem"].to_pylist()
        codes = [self._codes.setdefault(name, len(self._codes)) for name in names]
        rows = zip(table["source"].to_pylist(), table["version"].to_pylist(), strict=True)
        versions = [version if source == "policy" else AGELESS for source, version in rows]
        facts = {"id": ids, "problem": np.array(codes, np.int32)}
        facts |= {"uses": np.zeros(len(ids), np.int32), "alive": np.ones(len(ids), bool)}
        return pd.DataFrame(facts | {"version": np.array(versions, np.int64)})

    def state_dict(self) -> dict[str, Any]:
        """Return everything but the rows (see `table`); cheap enough for every step."""
        return {
            "ids": torch.tensor(self._rows["id"].to_numpy()),
            "uses": torch.tensor(self._rows["uses"].to_numpy()),
            "alive": torch.tensor(self._rows["alive"].to_numpy()),
            "next": self._next,
            "seen": list(self._seen),
            "counts": dict(self.counts),
            "sources": [(source.digest, dict(source.left_out)) for source in self.sources],
            "charges": self.costs.state_dict(),
        }

    def load_rows(self, table: pa.Table) -> None:
        """Restore the `table` of a checkpoint, before `load_state_dict`."""
        self.table, self._rows = table, self._facts(table, np.arange(len(table)))

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore what `state_dict` returned. Raises UserError if a source has changed."""
        for source, (digest, left_out) in zip(self.sources, state["sources"], strict=True):
            if source.digest != digest:
                raise UserError(f"{source}: it has changed since the checkpoint; restore it")
            source.left_out = Counter(left_out)
        for fact, saved in (("id", "ids"), ("uses", "uses"), ("alive", "alive")):
            self._rows[fact] = state[saved].numpy().copy()  # a checkpoint is mapped from its file
        self._next, self._seen = state["next"], dict.fromkeys(state["seen"])
        self.counts = Counter(state["counts"])
        self.costs.load_state_dict(state["charges"])

    def draw(self, prompt: PromptedProblem, count: int, *seed: object) -> list[Sample]:
        """Draw at most `count` distinct samples for a prompt; fewer if the buffer has fewer."""
        name = prompt.problem.name
        if name not in self._seen:
            self._seen[name] = None
            for source in self.sources:
                self._add(source.samples_for(prompt), 0)
        if self.config.max_age is not None:
            self._drop("too_old", self._rows["version"] < self.version() - self.config.max_age)
        own = self._rows["problem"] == self._codes.get(name, -1)
        candidates = np.flatnonzero(self._rows["alive"] & own)
        rows = self._choose(candidates.tolist(), count, stream("replay", *seed))
        self.counts["missing"] += count - len(rows)
        table = self.table.take(pa.array(rows, pa.int64()))
        if set(table["prompt"].to_pylist()) - {prompt_digest(prompt)}:
            raise UserError(
                f"replay: a response to {name} was generated for another prompt than this one, in "
                "which its log-probs do not hold; restore the prompt, and give each problem a name "
                "of its own"
            )
        samples = samples_of(table, [prompt] * len(rows), self.reward)
        ids = self._rows["id"].iloc[rows].tolist()
        return [replace(s, replayed=number) for s, number in zip(samples, ids, strict=True)]

    def _choose(self, rows: list[int], count: int, rng: Random) -> list[int]:
        """Choose by replay.sampling; `rows` are in the order of their arrival."""
        if self.config.sampling == "recent":
            return rows[::-1][:count]
        rng.shuffle(rows)
        if self.config.sampling == "uniform":
            return rows[:count]
        rewards = self.table["reward"].take(rows).to_pylist() if rows else []
        levels = [
            [row for row, reward in zip(rows, rewards, strict=True) if reward == level]
            for level in sorted(set(rewards))
        ]
        rng.shuffle(levels)
        turns = [(turn, index) for index, level in enumerate(levels) for turn in range(len(level))]
        return [levels[index][turn] for turn, index in sorted(turns)[:count]]

    def add_batch(self, samples: Sequence[Sample], step: int) -> None:
        """Count the uses of a batch's replayed samples, and add its fresh ones."""
        used = [s.replayed for s in samples if s.replayed is not None]
        # some may have been dropped since they were drawn
        self._rows["uses"] += self._rows["id"].isin(used)
        self.costs.charge_samples([s for s in samples if s.origin.source in ("run", "file")])
        if self.config.max_uses is not None:
            self._drop("used_up", self._rows["uses"] >= self.config.max_uses)
        if self.config.own:
            self._add([sample for sample in samples if sample.fresh], step)

    def metrics(self) -> dict[str, float]:
        """Return the size, mean uses, and counts since the run began."""
        uses = float(self._rows["uses"][self._rows["alive"]].mean()) if len(self) else 0.0
        current = {"size": len(self), "mean_uses": uses}
        names = ("missing", "too_old", "used_up", "beyond_capacity")
        left_out = sum(sum(source.left_out.values()) for source in self.sources)
        counted = {name: self.counts[name] for name in names} | {"left_out": left_out}
        return {f"replay/{name}": value for name, value in (current | counted).items()}

    def _add(self, samples: Sequence[Sample], step: int) -> None:
        if not samples:
            return
        new, count = table_of(samples, step), len(samples)
        self.table = pa.concat_tables([self.table, new])
        if self.table["step"].num_chunks > MAX_CHUNKS:
            self.table = self.table.combine_chunks()
        ids, self._next = np.arange(self._next, self._next + count), self._next + count
        self._rows = pd.concat([self._rows, self._facts(new, ids)], ignore_index=True)
        if (beyond := len(self) - self.config.capacity) > 0:
            self._drop("beyond_capacity", self._rows["alive"].cumsum() <= beyond)

    def _drop(self, reason: str, rows: pd.Series) -> None:
        """Drop `rows` and count them; compact once a quarter of all rows is dropped."""
        dropped = rows & self._rows["alive"]
        self.counts[reason] += int(dropped.sum())
        self._rows["alive"] &= ~dropped
        if len(self) < 0.75 * len(self._rows):
            kept = np.flatnonzero(self._rows["alive"])
            self.table = self.table.take(kept)
            self._rows = self._rows.iloc[kept].reset_index(drop=True)


def check_source(source: EarlierRun | ProgramFile, prompts: Sequence[PromptedProblem]) -> None:
    """Count samples of problems outside this run's train split.

    Raises UserError if no sample is usable, judged by the first problem that both have.
    """
    problems = source.problems
    outside = problems.keys() - {prompt.problem.name for prompt in prompts}
    if outside:
        count = sum(problems[name] for name in outside)
        source.left_out["of problems that this run's train split has not"] += count
    shared = next((prompt for prompt in prompts if prompt.problem.name in problems), None)
    if shared is None:
        raise UserError(f"{source}: none of its problems is in this run's train split")
    if isinstance(source, EarlierRun) and (reason := source.rejection_reason(shared)):
        raise UserError(f"{source}: {shared.problem.name}: {reason}")
