"""SPO's initial values, and the cached rewards of reference responses they are estimated from.

The rewards depend on the prompt, the reference policy (weights, config, end tokens, tokenizer), the
engine, the sampling settings, the judge, the problem's tests and the run's seed (so seeds share no
error), and on nothing else of the run. So all runs share the file. A response has the same seed
however many are requested, and a run is the same whether it reads the rewards or generates them.
The exception is about one response in thousands (study q0): other rows in a batch
round differently, which can change a token. The file holds rewards rather than values, so that it
serves every beta.
"""

from __future__ import annotations

import hashlib
import json
from collections import defaultdict, deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from algorithms.base import Algorithm, Batch
from algorithms.spo import pooled_soft_value
from algorithms.tensors import masked_sum
from envs.problem import Judgement, JudgeStats
from experiments.config.schema import PREFETCHED_BATCHES
from experiments.engines.base import Sampling
from experiments.rollout.conversations import generation_texts
from experiments.rollout.generate import Responder
from experiments.run_dir.ledger import Ledger
from experiments.sample import Origin, PromptedProblem, Sample, Turn, seed_for

RECENT_RESPONSES = 64  # of a problem, in the online estimate


@dataclass(eq=False)
class ReferenceRewards:
    """Rewards of `samples` reference responses to each prompt, cached on disk."""

    folder: Path
    responder: Responder  # as of training responses, untimed
    policy: str  # the reference's fingerprint
    sampling: Sampling
    samples: int
    seed: int
    ledger: Ledger

    def __post_init__(self) -> None:
        self.judging_stats = JudgeStats()  # judging costs, whichever run paid
        responder = self.responder
        # Two engines draw different responses from the same seeds.
        key: tuple[object, ...] = (self.policy, responder.engine.name, asdict(self.sampling))
        key += (self.seed, responder.reward.identity, responder.judge.version)
        if (dialogue := responder.dialogue) is not None:
            key += (dialogue.identity, dialogue.encoder.digest, "public programs")
        name = hashlib.sha256(repr(key).encode()).hexdigest()[:16]
        self.folder.mkdir(parents=True, exist_ok=True)
        self.path = self.folder / f"{name}.jsonl"
        self._responses = _read(self.path)  # prompt key → responses
        self._charged: set[str] = set()

    def state_dict(self) -> dict[str, Any]:
        """Return what this run was charged; the rewards are on disk."""
        return {"charged": asdict(self.judging_stats), "prompts": sorted(self._charged)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore what `state_dict` returned."""
        self.judging_stats, self._charged = JudgeStats(**state["charged"]), set(state["prompts"])

    def prefetch(
        self, upcoming: Callable[[int], Sequence[PromptedProblem]], batches_left: int
    ) -> None:
        """Generate for the next batches at once, if the next batch lacks responses.

        upcoming(n): the prompts of the next n batches; `batches_left`: batches left in the run.
        """
        if self._incomplete(upcoming(1)):
            self._draw(self._incomplete(upcoming(min(PREFETCHED_BATCHES, batches_left))))

    def rewards_of(self, prompts: Sequence[PromptedProblem]) -> list[Tensor]:
        """Return (samples,) float64 rewards of each prompt, charged at its first use.

        Infrastructure errors are left out; if nothing is left, the lowest reward stands alone.
        """
        self._draw(self._incomplete(prompts))
        tensors = []
        for prompt, key in zip(prompts, map(_prompt_key, prompts), strict=True):
            responses = self._responses[key][: self.samples]
            if key not in self._charged:
                self._charged.add(key)
                self._charge(prompt, responses)
            rewards = [r["reward"] for r in responses if r["reward"] is not None]
            tensors.append(
                torch.tensor(rewards or [self.responder.reward.low], dtype=torch.float64)
            )
        return tensors

    def _charge(self, prompt: PromptedProblem, responses: Sequence[Mapping[str, Any]]) -> None:
        """Charge cached responses too: equal runs cost the same. Equal programs run once."""
        programs = {r["program"]: r for r in responses if r["program"]}.values()
        public = {p["program"]: p for r in responses for p in r.get("public", ()) if p["program"]}
        self.ledger.counts.reference_tokens += sum(r["tokens"] for r in responses)
        turns = [[Turn(*pair) for pair in r.get("turns") or [(r["tokens"], 0)]] for r in responses]
        self.ledger.charge_generation(generation_texts([len(prompt.tokens)], [turns]))
        observed = sum(turn.observation for response in turns for turn in response)
        self.ledger.counts.observation_tokens += observed
        judged = [*programs, *public.values()]
        self.ledger.counts.reference_programs += len(judged)
        self.judging_stats.programs_judged += len(judged)
        self.judging_stats.tests_run += sum(r["tests"] for r in judged)
        self.judging_stats.cpu_s += sum(r["cpu_s"] for r in judged)
        self.judging_stats.infra_errors += sum(r["reward"] is None for r in programs)

    def _incomplete(self, prompts: Sequence[PromptedProblem]) -> dict[str, PromptedProblem]:
        by_key = {_prompt_key(prompt): prompt for prompt in prompts}
        return {k: p for k, p in by_key.items() if len(self._responses.get(k, ())) < self.samples}

    def _draw(self, incomplete: dict[str, PromptedProblem]) -> None:
        if not incomplete:
            return
        seeds = [
            [
                seed_for(self.seed, "reference", key, i)
                for i in range(len(self._responses.get(key, ())), self.samples)
            ]
            for key in incomplete
        ]
        prompts, origin = list(incomplete.values()), Origin("reference")
        with self.ledger.phase("reference"):
            _, samples = self.responder.respond(prompts, seeds, self.sampling, origin)
        remaining = iter(samples)
        for (key, prompt), group in zip(incomplete.items(), seeds, strict=True):
            self._add(key, prompt, [_record(next(remaining)) for _ in group])

    def _add(self, key: str, prompt: PromptedProblem, responses: list[dict[str, Any]]) -> None:
        known = self._responses.setdefault(key, [])
        record = {"prompt": key, "problem": prompt.problem.name, "first": len(known)}
        known += responses
        if any(r["reward"] is None or r.get("by_wall_time") for r in known):
            return  # another run may end otherwise
        with self.path.open("a") as file:  # a line cut by a crash spoils no other
            file.write("\n" + json.dumps(record | {"responses": responses}))


def _record(sample: Sample) -> dict[str, Any]:
    """Return what the file keeps of a response: enough to charge it again."""
    record = {"reward": sample.reward, "tokens": sample.generated, **_judged(sample.judgement)}
    if sample.turns:
        record["turns"] = [(turn.answer, turn.observation) for turn in sample.turns]
        record["public"] = [_judged(turn.public) for turn in sample.turns if turn.public]
        record["by_wall_time"] |= any(public["by_wall_time"] for public in record["public"])
    return record


def _judged(judgement: Judgement) -> dict[str, Any]:
    program = judgement.program
    digest = hashlib.sha256(program.encode("utf-8", "surrogatepass")).hexdigest()[:16]
    return {
        "program": digest if program else "",
        "tests": judgement.run,
        "cpu_s": judgement.cpu_s,
        "by_wall_time": judgement.by_wall_time,
    }


def _prompt_key(prompt: PromptedProblem) -> str:
    text = repr((prompt.tokens, prompt.problem.hash))
    return hashlib.sha256(text.encode()).hexdigest()[:24]


def _read(path: Path) -> dict[str, list[dict[str, Any]]]:
    """Read the file. A line cut short by a crash is left out, a duplicate is read once."""
    if not path.exists():
        return {}
    by_prompt: dict[str, list[dict[str, Any]]] = {}
    for line in path.read_text().splitlines():
        with suppress(json.JSONDecodeError):
            record = json.loads(line)
            responses = by_prompt.setdefault(record["prompt"], [])
            if record["first"] == len(responses):
                responses.extend(record["responses"])
    return by_prompt


class InitialValues:
    """SPO's Q̂_0 of each prompt by Monte Carlo from reference responses, or QRPO's quantiles.

    By the algorithm's `needs.initial_value`: "online" pools them with the run's own recent
    responses; "quantile" is the share of reference rewards that are no better than the response's.
    """

    def __init__(self, reference: ReferenceRewards, algorithm: Algorithm) -> None:
        self.reference, self.algorithm = reference, algorithm
        self.kind = algorithm.needs.initial_value
        self._recent: dict[str, deque[tuple[float, float]]] = defaultdict(
            lambda: deque(maxlen=RECENT_RESPONSES)
        )

    def state_dict(self) -> dict[str, Any]:
        """Return the recent responses, and the charged costs of reference responses."""
        recent = {problem: list(pairs) for problem, pairs in self._recent.items()}
        return {"recent": recent, "reference": self.reference.state_dict()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore what `state_dict` returned."""
        for problem, pairs in state["recent"].items():
            self._recent[problem].extend(pairs)
        self.reference.load_state_dict(state["reference"])

    def compute(self, samples: Sequence[Sample], batch: Batch) -> Tensor:
        """Return (batch,) values; soft values are equal within a group, quantiles need not be.

        Online values use earlier steps' responses only, so that no response is compared with a
        value that it is part of.
        """
        prompts = {sample.prompt.problem.name: sample.prompt for sample in samples}
        reference_rewards = self.reference.rewards_of(list(prompts.values()))
        by_name = dict(zip(prompts, reference_rewards, strict=True))
        names = [sample.prompt.problem.name for sample in samples]
        if self.kind == "quantile":
            # not the batch's rewards: in float32 a tie with a reference's 0.7 would be lost
            pairs = zip(names, (s.reward for s in samples if s.reward is not None), strict=True)
            rows = [float((by_name[name] <= reward).double().mean()) for name, reward in pairs]
        else:
            values: dict[str, float] = {}
            for name, reference in by_name.items():
                recent = torch.tensor(list(self._recent.get(name, ())), dtype=torch.float64)
                rewards, weights = recent.view(-1, 2).T
                beta = self.algorithm.initial_value_beta
                values[name] = float(pooled_soft_value(reference, rewards, weights, beta))
            rows = [values[name] for name in names]
        if self.kind == "online":
            self._add_recent(samples, batch)
        return torch.tensor(rows, dtype=batch.rewards.dtype, device=batch.rewards.device)

    def _add_recent(self, samples: Sequence[Sample], batch: Batch) -> None:
        assert batch.ref_logp is not None and batch.behaviour_logp is not None
        log_weights = masked_sum(batch.ref_logp - batch.behaviour_logp, batch.mask).tolist()
        for sample, log_weight in zip(samples, log_weights, strict=True):
            if sample.fresh and sample.reward is not None:
                pair = (sample.reward, log_weight)
                self._recent[sample.prompt.problem.name].append(pair)
