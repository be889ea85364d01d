"""Monte-Carlo initial values of SPO: rewards of reference responses, kept on disk.

A prompt's rewards depend on the prompt, the reference's weights, the engine, the sampling settings,
the judge and the problem's tests, and on nothing of the run: the file is shared by all runs, and a
run is the same whether it found them there or drew them itself. Rewards are kept rather than
values, so that any beta can read them.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path

import torch

from algorithms.spo import soft_value
from envs.judge import Judge
from envs.reward import RewardConfig
from experiments.engines.base import Engine, Sampling
from experiments.ledger import Ledger
from experiments.samples import PromptedProblem, judge_completions
from experiments.seeds import seed_for


class SoftValues:
    """β log mean exp(r/β) of each prompt, from `samples` responses of the reference."""

    def __init__(
        self,
        folder: Path,
        engine: Engine,
        weights: str,
        judge: Judge,
        tokenizer: object,
        reward: RewardConfig,
        sampling: Sampling,
        samples: int,
        beta: float,
    ) -> None:
        self.engine, self.judge, self.tokenizer = engine, judge, tokenizer
        self.reward, self.sampling, self.samples, self.beta = reward, sampling, samples, beta
        # Two engines draw different responses from the same seeds.
        drawn = (weights, engine.name, asdict(sampling), samples)
        key = (*drawn, asdict(reward), judge.version)
        name = hashlib.sha256(repr(key).encode()).hexdigest()[:16]
        folder.mkdir(parents=True, exist_ok=True)
        self.path = folder / f"{name}.jsonl"
        self._known = _read(self.path)
        self._charged: set[str] = set()

    def of(self, prompts: Sequence[PromptedProblem], ledger: Ledger) -> list[float]:
        """The prompts' soft values; those not on disk are sampled, judged and appended."""
        keys = [_key(prompt) for prompt in prompts]
        missing = {k: p for k, p in zip(keys, prompts, strict=True) if k not in self._known}
        if missing:
            with ledger.phase("reference"):
                self._draw(missing)
        for key in keys:
            if key not in self._charged:
                self._charged.add(key)
                ledger.counts.reference_tokens += self._known[key]["tokens"]
        rewards = [self._known[key]["rewards"] for key in keys]
        values = [soft_value(torch.tensor(r, dtype=torch.float64), self.beta) for r in rewards]
        return [float(value) for value in values]

    def _draw(self, missing: dict[str, PromptedProblem]) -> None:
        prompts = list(missing.values())
        seeds = [[seed_for("reference", key, i) for i in range(self.samples)] for key in missing]
        groups = self.engine.generate([p.tokens for p in prompts], seeds, self.sampling)
        flat = [completion for group in groups for completion in group]
        owners = [prompt for prompt in prompts for _ in range(self.samples)]
        judged = judge_completions(owners, flat, self.judge, self.tokenizer, self.reward)
        with self.path.open("a") as file:
            for row, key in enumerate(missing):
                group = judged[row * self.samples : (row + 1) * self.samples]
                rewards = [sample.reward for sample in group if sample.reward is not None]
                record = {
                    "prompt": key,
                    "problem": prompts[row].problem.name,
                    "rewards": rewards or [self.reward.low],
                    "tokens": sum(len(sample.tokens) for sample in group),
                }
                self._known[key] = record
                if len(rewards) == self.samples:  # what the judge failed on is not kept for others
                    file.write("\n" + json.dumps(record))  # a line cut by a crash stays alone


def _key(prompt: PromptedProblem) -> str:
    text = repr((prompt.tokens, prompt.problem.hash))
    return hashlib.sha256(text.encode()).hexdigest()[:24]


def _read(path: Path) -> dict[str, dict]:
    """What is on disk; a line cut short by a crash is drawn again."""
    if not path.exists():
        return {}
    known = {}
    for line in path.read_text().splitlines():
        with suppress(json.JSONDecodeError):
            record = json.loads(line)
            known[record["prompt"]] = record
    return known
