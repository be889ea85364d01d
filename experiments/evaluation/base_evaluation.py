"""The evaluation of the base model, which is the same in every run of a seed, so it is cached.

The cache key covers all that decides the result: the policy (weights, config, end tokens,
tokenizer), engine, prompts, tests, sampling, seed, judge, code, libraries and hardware. The
evaluation uses a judge of its own, so that the judge of later evaluations has the same state
whether this one was computed or read.

A run that reads the result is charged its cost: `time/evaluate_s` and `time/total_s` grow by the
seconds that it took. Otherwise the first run of a sweep would look slower than the others.
Evaluation has no other charge.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from envs.cache_folder import replace_file
from envs.environment import Environment
from envs.problem import Verdict
from experiments.config.schema import RunConfig
from experiments.evaluation.evaluate import evaluate

if TYPE_CHECKING:
    from experiments.build import Parts

ROOT = Path(__file__).resolve().parents[2]
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
