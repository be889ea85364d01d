"""The evaluation before training: the same bits in every run of a seed, so it is made once.

What it is known by is all that decides it: weights, engine, prompts, tests, sampling, seed, judge,
the code of both rooms, libraries and hardware. The judge is one of its own, so that later
evaluations find the same state of theirs whether this one was made or read.

A run that reads it is charged as one that made it: `time/evaluate_s` and `time/total_s` grow by the
seconds that it took when it was made, or else the first run of a sweep would look slower than the
others. Evaluation has no other charge.
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

from envs.environment import Environment
from envs.problem import Verdict
from experiments.config.schema import RunConfig
from experiments.evaluation.evaluate import evaluate

if TYPE_CHECKING:
    from experiments.build import Parts

ROOT = Path(__file__).resolve().parents[2]
ROOMS = ("algorithms", "envs", "experiments")


def evaluate_base(
    config: RunConfig, parts: Parts, info: dict[str, Any], progress: Callable[[int], None]
) -> tuple[list[dict[str, Any]], Path | None]:
    """The rows of step 0, and the file they were read from if they were not made here."""
    begin, judge = time.monotonic(), parts.environments.make()
    file = _file(config, parts, judge, info)
    known = _read(file)
    if known:
        parts.ledger.charge("evaluate", known["seconds"] - (time.monotonic() - begin))
        return known["rows"], file
    rows = evaluate(
        config, 0, parts.eval_prompts, parts.eval_engine, judge, parts.tokenizer, progress
    )
    recalled_s = judge.stats.recalled_s
    parts.ledger.charge("evaluate", recalled_s)
    if not any(row["verdict"] == Verdict.INFRA_ERROR for row in rows):
        _write(file, {"seconds": time.monotonic() - begin + recalled_s, "rows": rows})
    return rows, None


def _file(config: RunConfig, parts: Parts, judge: Environment, info: dict[str, Any]) -> Path:
    prompts = hashlib.sha256()
    for prompt in parts.eval_prompts:
        problem = prompt.problem
        known_by = (prompt.tokens, problem.hash, problem.name, problem.difficulty, problem.tags)
        prompts.update(repr(known_by).encode())
    e, m = config.eval, config.model
    decided_by = {
        "weights": info["weights"],
        "engine": (parts.eval_engine.description, config.engine.batch_size),
        "prompts": prompts.hexdigest(),
        "sampling": (e.samples, e.temperature, e.top_p, config.task.max_response_tokens),
        "seed": config.seed,
        "judge": judge.version,
        "code": _code(),
        "machine": (info["versions"], info["hardware"], m.device, m.dtype, m.threads),
    }
    name = hashlib.sha256(repr(decided_by).encode()).hexdigest()[:16]
    return Path(config.output_dir) / ".cache" / "base" / f"{name}.json"


@cache
def _code() -> str:
    digest = hashlib.sha256()
    for file in sorted(file for room in ROOMS for file in (ROOT / room).rglob("*.py")):
        digest.update(file.read_bytes())
    return digest.hexdigest()


def _read(file: Path) -> dict[str, Any] | None:
    with suppress(OSError, ValueError):
        return json.loads(file.read_text())
    return None


def _write(file: Path, known: dict[str, Any]) -> None:
    """Whole or not at all; a run does not fail for what only later ones would read."""
    unfinished = file.with_suffix(f".{time.monotonic_ns()}")
    with suppress(OSError):
        file.parent.mkdir(parents=True, exist_ok=True)
        unfinished.write_text(json.dumps(known))
        unfinished.replace(file)
    unfinished.unlink(missing_ok=True)
