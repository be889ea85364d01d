"""Evaluation: n judged responses to each problem, one row each.

The random streams depend on the run's seed, the step and whether the temperature is a further one,
not on the algorithm. The evaluation of the base model is therefore the same in every run of a seed,
and cached on disk. The key covers all that decides the result: the policy (weights, config, end
tokens, tokenizer), engine, prompts, tests, sampling, seed, judge, code, libraries and hardware.

A run that reads the result is charged its cost: `time/evaluate_s` and `time/total_s` grow by the
seconds that it took. Otherwise the first run of a sweep would look slower than the others.
Evaluation has no other charge.
"""

from __future__ import annotations

import hashlib
import json
import statistics
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cache, partial
from pathlib import Path
from typing import Any

from analysis.pass_at_k import pass_at_k
from envs.caching import replace_file
from envs.judge.extract import as_response
from envs.problem import Environment, Judgement, Submission, Verdict
from envs.tasks.prompts import Feedback
from experiments.engines.base import Sampling
from experiments.rollout.generate import Judging, Responder
from experiments.run_dir.ledger import Ledger
from experiments.sample import Origin, PromptedProblem, Sample, seed_for

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = ("algorithms", "envs", "experiments")  # their code is part of the cache key

Row = dict[str, Any]  # of evals.parquet
Streams = tuple[object, ...]  # name of the random streams of an evaluation
EVAL: Streams = ("eval",)
Judge = Callable[[Sequence[Submission]], list[Judgement]]


@dataclass(frozen=True)
class Evaluation:
    """Evaluates the trained weights; `responder` has their engine, and times no phases."""

    prompts: Sequence[PromptedProblem]
    responder: Responder
    sampling: Sampling  # the main one, at `eval.temperature`
    samples: int  # of a problem
    seed: int
    ledger: Ledger
    # makes judges for the base, so that the other's state is the same whether its evaluation is
    # computed or read
    base_judge: Callable[[], Environment]
    cache: Path
    facts: object  # of model and machine, part of the key in `cache`

    def rows(self, step: int, temperature: float | None = None) -> tuple[list[Row], Path | None]:
        """Return the rows of evals.parquet, and the file they were read from if they were.

        `temperature`: one of `eval.further_temperatures`, whose random streams are its own; None:
        `eval.temperature`. A sample with an infrastructure error keeps its INFRA_ERROR row; metrics
        leave it out.
        """
        sampling, streams = self.sampling, EVAL
        if temperature is not None:
            sampling = replace(sampling, temperature=temperature)
            streams = ("eval", "temperature", temperature)
        evaluate = partial(self._evaluate, step, sampling, streams)
        with self.ledger.phase("evaluate"):
            if step:
                rows = evaluate(self.responder)
                self.ledger.charge_recalled("evaluate", self.responder.judge.stats.recalled_s)
                return rows, None
            begin, judge = time.monotonic(), self.base_judge()
            file = self._cache_file(judge.version, sampling, streams)
            with suppress(OSError, ValueError):
                cached = json.loads(file.read_text())
                self.ledger.charge("evaluate", cached["seconds"] - (time.monotonic() - begin))
                return cached["rows"], file
            rows = evaluate(replace(self.responder, judge=judge))
            self.ledger.charge("evaluate", judge.stats.recalled_s)
            certain = not any(row["verdict"] == Verdict.INFRA_ERROR for row in rows)
            if certain and not judge.stats.by_wall_time:
                with suppress(OSError):  # only later runs would read the file
                    file.parent.mkdir(parents=True, exist_ok=True)
                    seconds = time.monotonic() - begin + judge.stats.recalled_s
                    replace_file(file, json.dumps({"seconds": seconds, "rows": rows}))
            return rows, None

    def _cache_file(self, judge_version: str, sampling: Sampling, streams: Streams) -> Path:
        prompts = hashlib.sha256()
        for prompt in self.prompts:
            problem = prompt.problem
            identity = (prompt.tokens, problem.hash, problem.name, problem.difficulty, problem.tags)
            prompts.update(repr(identity).encode())
        dialogue = self.responder.dialogue
        key = {
            "engine": self.responder.engine.description,
            "prompts": prompts.hexdigest(),
            "sampling": (self.samples, sampling),
            "streams": streams,
            "dialogue": dialogue and (dialogue.identity, dialogue.encoder.digest),
            "seed": self.seed,
            "judge": judge_version,
            "code": _code_hash(),
            "facts": self.facts,
        }
        name = hashlib.sha256(repr(key).encode()).hexdigest()[:16]
        return self.cache / f"{name}.json"

    def _evaluate(
        self,
        step: int,
        sampling: Sampling,
        streams: Streams,
        responder: Responder,
    ) -> list[Row]:
        n, prompts = self.samples, list(self.prompts)  # read from their store once
        seeds = [
            [seed_for(self.seed, *streams, step, row, i) for i in range(n)]
            for row in range(len(prompts))
        ]
        completions, samples = responder.respond(
            prompts, seeds, sampling, Origin("policy", step=step)
        )
        by_turn: Sequence[Row] = [{}] * len(samples)
        if responder.dialogue:
            with Judging(responder) as judging:
                judge = lambda missing: judging.start(missing).wait()  # noqa: E731
                by_turn = turn_columns(samples, judge, responder.dialogue.feedback)
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


@cache
def _code_hash() -> str:
    digest = hashlib.sha256()
    for file in sorted(f for package in PACKAGES for f in (ROOT / package).rglob("*.py")):
        digest.update(file.read_bytes())
    return digest.hexdigest()


def turn_columns(samples: Sequence[Sample], judge: Judge, feedback: Feedback) -> list[Row]:
    """Return the columns of evals.parquet that conversations add: what each answer was worth.

    A conversation needs no hidden verdict of an answer before the last, and no public one of the
    last answer that was left, so these are found now. "": there are no public tests.
    """
    columns = []
    missing: list[tuple[list[str], int, Submission]] = []  # verdicts, place, what finds it
    for sample in samples:
        problem, judgement = sample.prompt.problem, sample.judgement
        publics = [turn.public for turn in sample.turns]
        known = [one.program for one in publics[:-1] if one is not None]
        programs = [*known, judgement.program]
        public = ["" if one is None else str(one.verdict) for one in publics]
        hidden = [*[""] * (len(publics) - 1), str(judgement.verdict)]
        for tests, verdicts in ((feedback.public(problem), public), (problem, hidden)):
            for place, program in enumerate(programs):
                if tests is not None and not verdicts[place]:
                    text = as_response(program) if program else ""
                    missing.append((verdicts, place, Submission(tests, text)))
        columns.append(
            {
                "turns": len(sample.turns),
                "turn_verdicts": hidden,
                "turn_public": public,
                "turn_programs": programs,
                "turn_tokens": [turn.answer for turn in sample.turns],
                "observations": [turn.text for turn in sample.turns[:-1]],
                "observation_tokens": len(sample.tokens) - sample.generated,
            }
        )
    judged = judge([submission for _, _, submission in missing])
    for (verdicts, place, _), judgement in zip(missing, judged, strict=True):
        verdicts[place] = str(judgement.verdict)
    return columns


def pass_at_each(ks: Sequence[int], rows: Sequence[Row]) -> dict[int, float]:
    """Return k → mean pass@k over problems with k samples, without infrastructure errors."""
    by_problem: dict[str, list[bool]] = {}
    for row in rows:
        if row["verdict"] != Verdict.INFRA_ERROR:
            by_problem.setdefault(row["problem"], []).append(row["verdict"] == Verdict.ACCEPTED)
    scores = {}
    for k in ks:
        estimates = [pass_at_k(len(a), sum(a), k) for a in by_problem.values() if len(a) >= k]
        scores[k] = statistics.fmean(estimates) if estimates else float("nan")
    return scores
