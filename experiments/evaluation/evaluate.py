"""Evaluation: n responses to each problem, judged, one row each.

The responses' random streams depend on the run's seed and the step, not on the algorithm, so the
base policy is the same in every run of a seed.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from typing import Any

from analysis.pass_at_k import pass_at_k
from envs.environment import Environment
from envs.problem import Verdict
from experiments.config.schema import RunConfig
from experiments.engines.base import Engine, Sampling
from experiments.rollout.generation import Responder, overlaps
from experiments.sample import Origin, PromptedProblem
from experiments.seeds import seed_for


def evaluate(
    config: RunConfig,
    step: int,
    prompts: Sequence[PromptedProblem],
    engine: Engine,
    judge: Environment,
    tokenizer: object,
    progress: Callable[[int], None] | None = None,
) -> list[dict[str, Any]]:
    """Rows of evals.parquet: `eval.samples` responses to each prompt.

    A sample that the judge failed on keeps its INFRA_ERROR row; metrics leave it out.
    """
    c = config.eval
    prompts = list(prompts)  # read from their store once
    sampling = Sampling(config.task.max_response_tokens, c.temperature, c.top_p)
    seeds = [
        [seed_for(config.seed, "eval", step, row, i) for i in range(c.samples)]
        for row in range(len(prompts))
    ]
    responder = Responder(engine, judge, tokenizer, config.task.reward, overlaps(config))
    origin = Origin("policy", step=step)
    written, samples = responder.respond(prompts, seeds, sampling, origin, progress)
    return [
        {
            "step": step,
            "problem": sample.prompt.problem.name,
            "sample": i % c.samples,
            "verdict": str(sample.judgement.verdict),
            "passed": sample.judgement.passed,
            "total": sample.judgement.total,
            "program": sample.judgement.program,
            "tokens": len(completion.tokens),
            "entropy": completion.entropy,
            "truncated": completion.truncated,
            "difficulty": sample.prompt.problem.difficulty,
            "tags": ",".join(sample.prompt.problem.tags),
            "cpu_s": sample.judgement.cpu_s,
        }
        for i, (sample, completion) in enumerate(zip(samples, written, strict=True))
    ]


def pass_at_each(ks: Sequence[int], rows: Sequence[dict[str, Any]]) -> dict[int, float]:
    """k → mean pass@k of the problems with k samples; a failure of the judge is no sample."""
    by_problem: dict[str, list[bool]] = {}
    for row in rows:
        if row["verdict"] != Verdict.INFRA_ERROR:
            right = row["verdict"] == Verdict.ACCEPTED
            by_problem.setdefault(row["problem"], []).append(right)
    scores = {}
    for k in ks:
        estimates = [pass_at_k(len(v), sum(v), k) for v in by_problem.values() if len(v) >= k]
        scores[k] = statistics.fmean(estimates) if estimates else float("nan")
    return scores
