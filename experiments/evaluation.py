"""Evaluation: n judged responses to each problem, one row each.

The random streams depend on the run's seed, the step and whether the temperature is a further one,
not on the algorithm. The evaluation of the base model is therefore the same in every run of a seed.
"""

from __future__ import annotations

import hashlib
import json
import statistics
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from analysis.pass_at_k import pass_at_k
from envs.cache_folder import replace_file
from envs.environment import Environment, Submission
from envs.feedback import Feedback
from envs.judge.extract import as_response
from envs.problem import Verdict
from experiments.config.schema import RunConfig
from experiments.engines.base import Engine, Sampling
from experiments.rollout.conversations import Dialogue
from experiments.rollout.generate import Responder, overlaps
from experiments.rollout.rollouts import response_limit
from experiments.run_dir.activity import Activity
from experiments.sample import Origin, PromptedProblem, Sample
from experiments.seeds import seed_for

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

    from experiments.build import Parts


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


def turn_verdicts(
    samples: Sequence[Sample], judge: Environment, feedback: Feedback
) -> list[list[tuple[Verdict | None, Verdict]]]:
    """Return for each answer of each sample its verdicts by the public and the hidden tests.

    A conversation needs no hidden verdict of an answer before the last, and no public one of the
    last answer that was left, so these are found now. None: there are no public tests.
    """
    found: list[list[list[Verdict | None]]] = []
    missing: list[tuple[list[Verdict | None], int, Submission]] = []
    for sample in samples:
        problem, last = sample.prompt.problem, len(sample.turns) - 1
        rows: list[list[Verdict | None]] = []
        for place, turn in enumerate(sample.turns):
            hidden = sample.judgement if place == last else None
            row: list[Verdict | None] = [
                None if one is None else one.verdict for one in (turn.public, hidden)
            ]
            program = (hidden or turn.public or sample.judgement).program
            for which, tests in enumerate((feedback.public(problem), problem)):
                if row[which] is None and tests is not None:
                    text = as_response(program) if program else ""
                    missing.append((row, which, Submission(tests, text)))
            rows.append(row)
        found.append(rows)
    judged = judge.judge([submission for _, _, submission in missing])
    for (row, which, _), judgement in zip(missing, judged, strict=True):
        row[which] = judgement.verdict
    return [[_both(row) for row in rows] for rows in found]


def _both(row: Sequence[Verdict | None]) -> tuple[Verdict | None, Verdict]:
    public, hidden = row
    assert hidden is not None, "every problem has hidden tests"
    return public, hidden


ROOT = Path(__file__).resolve().parents[1]
PACKAGES = ("algorithms", "envs", "experiments")  # their code is part of the cache key


def evaluate_base(
    config: RunConfig,
    parts: Parts,
    info: dict[str, Any],
    progress: Callable[[int], None],
    temperature: float | None = None,
) -> tuple[list[dict[str, Any]], Path | None]:
    """Return the rows of step 0, and the file they were read from; None: they were computed.

    `temperature`: as of `evaluate`.
    """
    begin, judge = time.monotonic(), parts.environments.make()
    file = _cache_file(config, parts, judge, info, temperature)
    cached = _read(file)
    if cached:
        parts.ledger.charge("evaluate", cached["seconds"] - (time.monotonic() - begin))
        return cached["rows"], file
    rows = evaluate(
        config,
        0,
        parts.eval_prompts,
        parts.eval_engine,
        judge,
        parts.tokenizer,
        progress,
        temperature,
        parts.ledger.activity,
        parts.eval_dialogue,
    )
    recalled_s = judge.stats.recalled_s
    parts.ledger.charge("evaluate", recalled_s)
    certain = not any(row["verdict"] == Verdict.INFRA_ERROR for row in rows)
    if certain and not judge.stats.by_wall_time:
        _write(file, {"seconds": time.monotonic() - begin + recalled_s, "rows": rows})
    return rows, None


def _cache_file(
    config: RunConfig,
    parts: Parts,
    judge: Environment,
    info: dict[str, Any],
    temperature: float | None,
) -> Path:
    prompts = hashlib.sha256()
    for prompt in parts.eval_prompts:
        problem = prompt.problem
        identity = (prompt.tokens, problem.hash, problem.name, problem.difficulty, problem.tags)
        prompts.update(repr(identity).encode())
    evaluation, model, dialogue = config.eval, config.model, parts.eval_dialogue
    key = {
        "policy": info["policy"],
        "engine": (parts.eval_engine.description, config.engine.batch_size),
        "prompts": prompts.hexdigest(),
        "sampling": (
            evaluation.samples,
            evaluation.temperature if temperature is None else temperature,
            evaluation.top_p,
            config.task.max_response_tokens,
        ),
        "further": temperature is not None,  # its random streams are others
        "dialogue": dialogue and (dialogue.identity, dialogue.encoder.digest),
        "seed": config.seed,
        "judge": judge.version,
        "code": _code_hash(),
        "machine": (info["versions"], info["hardware"], model.device, model.dtype, model.threads),
    }
    name = hashlib.sha256(repr(key).encode()).hexdigest()[:16]
    return Path(config.output_dir) / ".cache" / "base" / f"{name}.json"


@cache
def _code_hash() -> str:
    digest = hashlib.sha256()
    for file in sorted(f for package in PACKAGES for f in (ROOT / package).rglob("*.py")):
        digest.update(file.read_bytes())
    return digest.hexdigest()


def _read(file: Path) -> dict[str, Any] | None:
    with suppress(OSError, ValueError):
        return json.loads(file.read_text())
    return None


def _write(file: Path, result: dict[str, Any]) -> None:
    """A failure to write does not end the run: only later runs would read the file."""
    with suppress(OSError):
        file.parent.mkdir(parents=True, exist_ok=True)
        replace_file(file, json.dumps(result))
