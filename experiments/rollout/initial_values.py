"""Rewards of reference responses, from which SPO's initial values are estimated; kept on disk.

They depend on the prompt, the reference's weights, the engine, the sampling settings, the judge,
the problem's tests and the run's seed: seeds share no error. Nothing else of the run matters: the
file is shared by all runs, a response has the same seed however many are asked for, and a run is
the same whether it found them there or drew them itself. But for one in thousands
(docs/results/study-q0.md): other rows in the batch round otherwise, which may tip a token. Rewards are kept
rather than values, so that any beta can read them.
"""

from __future__ import annotations

import hashlib
import json
from collections import defaultdict, deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from algorithms.base import Batch
from algorithms.spo import pooled_soft_value
from algorithms.tensors import masked_sum
from envs.environment import Environment, JudgeStats
from envs.reward import RewardConfig
from experiments.engines.base import Engine, Sampling
from experiments.rollout.generation import Responder
from experiments.run_dir.budget import Ledger
from experiments.sample import Origin, PromptedProblem, Sample
from experiments.seeds import seed_for

PREFETCHED_BATCHES = (
    16  # batches whose prompts are answered at once: each time an engine takes other weights
)


class ReferenceRewards:
    """Rewards of `samples` responses of the reference to each prompt."""

    def __init__(
        self,
        folder: Path,
        engine: Engine,
        weights: str,
        judge: Environment,
        tokenizer: object,
        reward: RewardConfig,
        sampling: Sampling,
        samples: int,
        seed: int,
        ledger: Ledger,
        overlap: bool,
    ) -> None:
        self.engine, self.judge, self.tokenizer = engine, judge, tokenizer
        self.reward, self.sampling, self.samples, self.seed = reward, sampling, samples, seed
        self.ledger, self.overlap = ledger, overlap
        self.judging_stats = JudgeStats()  # what judging them has cost, in this run or another
        # Two engines draw different responses from the same seeds.
        drawn = (weights, engine.name, asdict(sampling), seed)
        key = (*drawn, reward.identity, judge.version)
        name = hashlib.sha256(repr(key).encode()).hexdigest()[:16]
        folder.mkdir(parents=True, exist_ok=True)
        self.path = folder / f"{name}.jsonl"
        self._known = _read(self.path)
        self._charged: set[str] = set()

    def state_dict(self) -> dict[str, Any]:
        """What this run was charged; the rewards themselves are on disk."""
        return {"charged": asdict(self.judging_stats), "prompts": sorted(self._charged)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Back to what `state_dict` held."""
        self.judging_stats, self._charged = JudgeStats(**state["charged"]), set(state["prompts"])

    def prefetch(self, coming: Callable[[int], Sequence[PromptedProblem]], left: int) -> None:
        """Before a batch: where its prompts are not known, draw for the next batches at once.

        coming(n): the prompts of the next n batches; left: how many batches there will be.
        """
        if self._missing(coming(1)):
            self._draw(self._missing(coming(min(PREFETCHED_BATCHES, left))))

    def rewards_of(self, prompts: Sequence[PromptedProblem]) -> list[Tensor]:
        """(samples,) rewards of each prompt in float64, charged when first asked for.

        Fewer where the judge itself failed on some; where it failed on all, the lowest reward.
        """
        self._draw(self._missing(prompts))
        found = []
        for key in map(_key, prompts):
            responses = self._known[key][: self.samples]
            if key not in self._charged:
                self._charged.add(key)
                self._charge(responses)
            rewards = [r["reward"] for r in responses if r["reward"] is not None]
            found.append(torch.tensor(rewards or [self.reward.low], dtype=torch.float64))
        return found

    def _charge(self, responses: Sequence[Mapping]) -> None:
        """Also what was on disk, so that equal runs cost the same. Equal programs run once."""
        programs = {r["program"]: r for r in responses if r["program"]}.values()
        self.ledger.counts.reference_tokens += sum(r["tokens"] for r in responses)
        self.ledger.counts.reference_programs += len(programs)
        self.judging_stats.programs_judged += len(programs)
        self.judging_stats.tests_run += sum(r["tests"] for r in programs)
        self.judging_stats.cpu_s += sum(r["cpu_s"] for r in programs)
        self.judging_stats.infra_errors += sum(r["reward"] is None for r in programs)

    def _missing(self, prompts: Sequence[PromptedProblem]) -> dict[str, PromptedProblem]:
        keys = {_key(prompt): prompt for prompt in prompts}
        return {k: p for k, p in keys.items() if len(self._known.get(k, ())) < self.samples}

    def _draw(self, missing: dict[str, PromptedProblem]) -> None:
        if not missing:
            return
        prompts = list(missing.values())
        responder = Responder(self.engine, self.judge, self.tokenizer, self.reward, self.overlap)
        seeds = [
            [seed_for(self.seed, "reference", key, i) for i in self._unwritten(key)]
            for key in missing
        ]
        with self.ledger.phase("reference"):
            _, judged = responder.respond(prompts, seeds, self.sampling, Origin("reference"))
        rest = iter(judged)
        for (key, prompt), of in zip(missing.items(), seeds, strict=True):
            self._keep(key, prompt, [_record(next(rest)) for _ in of])

    def _unwritten(self, key: str) -> range:
        return range(len(self._known.get(key, ())), self.samples)

    def _keep(self, key: str, prompt: PromptedProblem, responses: list[dict]) -> None:
        first = len(self._known.get(key, ()))
        self._known[key] = [*self._known.get(key, ()), *responses]
        if any(r["reward"] is None for r in self._known[key]):
            return  # what the judge failed on is not kept for others
        record = {"prompt": key, "problem": prompt.problem.name, "first": first}
        with self.path.open("a") as file:  # a line cut by a crash stays alone
            file.write("\n" + json.dumps(record | {"responses": responses}))


def _record(sample: Sample) -> dict:
    """What is kept of a response: enough to charge it again."""
    program = sample.judgement.program
    digest = hashlib.sha256(program.encode("utf-8", "surrogatepass")).hexdigest()[:16]
    return {
        "reward": sample.reward,
        "tokens": len(sample.tokens),
        "program": digest if program else "",
        "tests": sample.judgement.run,
        "cpu_s": sample.judgement.cpu_s,
    }


def _key(prompt: PromptedProblem) -> str:
    text = repr((prompt.tokens, prompt.problem.hash))
    return hashlib.sha256(text.encode()).hexdigest()[:24]


def _read(path: Path) -> dict[str, list[dict]]:
    """What is on disk. A line cut short by a crash is drawn again, one written twice read once."""
    if not path.exists():
        return {}
    known: dict[str, list[dict]] = {}
    for line in path.read_text().splitlines():
        with suppress(json.JSONDecodeError):
            record = json.loads(line)
            held = known.setdefault(record["prompt"], [])
            if record["first"] == len(held):
                held.extend(record["responses"])
    return known


# Q̂_0 of each sample's prompt for SPO: Monte-Carlo, or pooled with recent responses.


RECENT = 64  # responses to a problem that the online estimate looks back on


class InitialValues:
    """Soft values of prompts from reference responses; `online` adds the run's own recent ones."""

    def __init__(self, reference: ReferenceRewards, beta: float, online: bool) -> None:
        self.reference, self.beta, self.online = reference, beta, online
        self._recent: dict[str, deque[tuple[float, float]]] = defaultdict(
            lambda: deque(maxlen=RECENT)
        )

    def state_dict(self) -> dict[str, Any]:
        """The recent responses, and what of the reference's was charged."""
        recent = {problem: list(pairs) for problem, pairs in self._recent.items()}
        return {"recent": recent, "reference": self.reference.state_dict()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Back to what `state_dict` held."""
        for problem, pairs in state["recent"].items():
            self._recent[problem].extend(pairs)
        self.reference.load_state_dict(state["reference"])

    def compute(self, samples: Sequence[Sample], batch: Batch) -> Tensor:
        """(batch,) one value for each sample, equal within a group.

        Online values take earlier steps' responses only, so that no response has a part in the
        value that it is compared with.
        """
        prompts = {sample.prompt.problem.name: sample.prompt for sample in samples}
        known = self.reference.rewards_of(list(prompts.values()))
        values = {
            name: self._estimate(name, rewards)
            for name, rewards in zip(prompts, known, strict=True)
        }
        if self.online:
            self._remember(samples, batch)
        rows = [values[sample.prompt.problem.name] for sample in samples]
        return torch.tensor(rows, dtype=batch.rewards.dtype, device=batch.rewards.device)

    def _estimate(self, problem: str, reference: Tensor) -> float:
        recent = torch.tensor(list(self._recent.get(problem, ())), dtype=torch.float64)
        rewards, log_weights = recent.view(-1, 2).T
        return float(pooled_soft_value(reference, rewards, log_weights, self.beta))

    def _remember(self, samples: Sequence[Sample], batch: Batch) -> None:
        log_weights = masked_sum(batch.ref_logp - batch.behaviour_logp, batch.mask).tolist()
        for sample, log_weight in zip(samples, log_weights, strict=True):
            if sample.fresh:
                pair = (sample.reward, log_weight)
                self._recent[sample.prompt.problem.name].append(pair)
