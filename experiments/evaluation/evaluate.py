"""Evaluation: n judged responses to each problem, one row each.

The random streams depend on the run's seed, the step and whether the temperature is a further one,
not on the algorithm. The evaluation of the base model is therefore the same in every run of a seed.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from analysis.pass_at_k import pass_at_k
from envs.environment import Environment
from envs.problem import Verdict
from experiments.config.schema import RunConfig
from experiments.engines.base import Engine, Sampling
from experiments.evaluation.turn_verdicts import turn_verdicts
from experiments.rollout.conversations import Dialogue
from experiments.rollout.generation import Responder, overlaps
from experiments.rollout.rollouts import response_limit
from experiments.run_dir.activity import Activity
from experiments.sample import Origin, PromptedProblem, Sample
from experiments.seeds import seed_for

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase


def evaluate(
    config: RunConfig,
    step: int,
    prompts: Sequence[PromptedProblem],
    engine: Engine,
    judge: Environment,
    tokenizer: PreTrainedTokenizerBase,
    progress: Callable[[int], None] | None = None,
    temperature: float | None = None,
    activity: Activity | None = None,
    dialogue: Dialogue | None = None,
) -> list[dict[str, Any]]:
    """Return the rows of evals.parquet: `eval.samples` responses to each prompt.

    `temperature`: one of `eval.further_temperatures`, whose random streams are its own; None:
    `eval.temperature`. A sample with an infrastructure error keeps its INFRA_ERROR row; metrics
    leave it out. `activity` shows how far it is. `dialogue`: of conversations, whose rows have
    further columns.
    """
    n = config.eval.samples
    prompts = list(prompts)  # read from their store once
    used = config.eval.temperature if temperature is None else temperature
    sampling = Sampling(response_limit(config), used, config.eval.top_p)
    purpose = ("eval",) if temperature is None else ("eval", "temperature", temperature)
    seeds = [
        [seed_for(config.seed, *purpose, step, row, i) for i in range(n)]
        for row in range(len(prompts))
    ]
    responder = Responder(
        engine,
        judge,
        tokenizer,
        config.task.reward,
        overlaps(config),
        activity=activity,
        dialogue=dialogue,
    )
    origin = Origin("policy", step=step)
    completions, samples = responder.respond(prompts, seeds, sampling, origin, progress)
    by_turn = _turn_columns(samples, judge, dialogue) if dialogue else [{}] * len(samples)
    return [
        {
            "step": step,
            "problem": sample.prompt.problem.name,
            "sample": i % n,
            "verdict": str(sample.judgement.verdict),
            "passed": sample.judgement.passed,
            "total": sample.judgement.total,
            "program": sample.judgement.program,
            "tokens": sample.generated,
            "entropy": completion.entropy,
            "truncated": completion.truncated,
            "difficulty": sample.prompt.problem.difficulty,
            "tags": ",".join(sample.prompt.problem.tags),
            "cpu_s": sample.judgement.cpu_s,
            **by_turn[i],
        }
        for i, (sample, completion) in enumerate(zip(samples, completions, strict=True))
    ]


def _turn_columns(
    samples: Sequence[Sample], judge: Environment, dialogue: Dialogue
) -> list[dict[str, Any]]:
    """Return the columns of evals.parquet that conversations add: what each answer was worth."""
    columns = []
    by_sample = turn_verdicts(samples, judge, dialogue.feedback)
    for sample, verdicts in zip(samples, by_sample, strict=True):
        programs = [turn.public.program for turn in sample.turns[:-1] if turn.public is not None]
        columns.append(
            {
                "turns": len(sample.turns),
                "turn_verdicts": [str(verdict) for _, verdict in verdicts],
                "turn_public": ["" if public is None else str(public) for public, _ in verdicts],
                "turn_programs": [*programs, sample.judgement.program],
                "turn_tokens": [turn.answer for turn in sample.turns],
                "observations": [turn.text for turn in sample.turns[:-1]],
                "observation_tokens": len(sample.tokens) - sample.generated,
            }
        )
    return columns


def pass_at_each(ks: Sequence[int], rows: Sequence[dict[str, Any]]) -> dict[int, float]:
    """Return k → mean pass@k over problems with k samples, without infrastructure errors."""
    by_problem: dict[str, list[bool]] = {}
    for row in rows:
        if row["verdict"] != Verdict.INFRA_ERROR:
            by_problem.setdefault(row["problem"], []).append(row["verdict"] == Verdict.ACCEPTED)
    scores = {}
    for k in ks:
        estimates = [
            pass_at_k(len(accepted), sum(accepted), k)
            for accepted in by_problem.values()
            if len(accepted) >= k
        ]
        scores[k] = statistics.fmean(estimates) if estimates else float("nan")
    return scores
