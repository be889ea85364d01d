"""An evaluation's programs judged again by inspect-ai's MBPP: `make calibrate`, end to end.

    python run.py task=mbpp task.path=ROWS model=NAME steps=0 eval.split=test eval.samples=10
    python -m experiments.calibrate run=FOLDER rows=ROWS

Prints both judges' pass@k of the same programs with intervals, and each program on which they
differ with both reasons. The other judge is `inspect_evals/mbpp`: it takes the code block out of
the response, appends the row's `test_list`, and runs all of it with python.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import pandas as pd

from analysis.pass_at_k import pass_at_k
from envs.judge.extract import as_response
from envs.problem import Verdict
from experiments.errors import UserError, command


@dataclass
class Options:
    """The command line."""

    run: Path  # a run folder of task=mbpp, whose last evaluation counts
    rows: Path  # MBPP's rows, FILE.jsonl
    # inspect-ai's sandbox; local runs the programs on this machine, isolated from nothing
    sandbox: Literal["docker", "local"] = "docker"


def main(options: Options) -> None:
    """Judge and compare."""
    evals = pd.read_parquet(options.run / "evals.parquet")
    evals = evals[(evals.step == evals.step.max()) & (evals.verdict != Verdict.INFRA_ERROR)]
    with options.rows.open(encoding="utf-8") as lines:
        rows = {f"mbpp/{row['task_id']}": row for row in map(json.loads, lines)}
    if missing := sorted(set(evals.problem) - rows.keys()):
        raise UserError(f"rows={options.rows}: {missing[0]} of run={options.run} is not in it")
    programs = [as_response(program or "") for program in evals.program]
    tests = [rows[problem]["test_list"] for problem in evals.problem]
    judged = inspect_judged(programs, tests, options.sandbox, options.run / "inspect")
    evals = evals.assign(ours=evals.verdict == Verdict.ACCEPTED)
    evals["theirs"], evals["reason"] = zip(*judged, strict=True)
    for name, judge in (("ours", "SPO-Bench"), ("theirs", "inspect_evals/mbpp")):
        counts = evals.groupby("problem")[name].agg(["size", "sum"])
        scores = (score(counts, k) for k in (1, 10) if k <= counts["size"].min())
        print(f"{judge}, {len(counts)} problems: {', '.join(scores)}")
    differ = evals[evals.ours != evals.theirs]
    print(f"the judges differ on {len(differ)} of {len(evals)} programs")
    for row in differ.itertuples():
        ours = f"{row.verdict}, {row.passed} of {row.total} tests"
        print(f"{row.problem} sample {row.sample}: ours {ours}; theirs {row.reason}")


def score(counts: pd.DataFrame, k: int) -> str:
    """Return pass@k with the half-width of its 95 % interval over problems."""
    each = pd.Series([pass_at_k(n, right, k) for n, right in counts.to_numpy().tolist()])
    return f"pass@{k} {each.mean():.3f} ± {1.96 * each.std() / math.sqrt(len(each)):.3f}"


def inspect_judged(
    responses: list[str], tests: list[list[str]], sandbox: str, logs: Path
) -> list[tuple[bool, str]]:
    """Return whether inspect-ai accepts each response, and its reason in a line."""
    try:
        import inspect_ai
        from inspect_ai.dataset import Sample
        from inspect_ai.model import ModelOutput
        from inspect_ai.solver import solver
        from inspect_evals.mbpp.mbpp import verify
    except ImportError as error:
        raise UserError(f"{error.name} is not installed; pip install -e '.[inspect]'") from error

    @solver
    def replay() -> Any:
        async def solve(state: Any, generate: Any) -> Any:
            state.output = ModelOutput.from_content("replay", responses[int(state.sample_id)])
            return state

        return solve

    samples = [Sample(id=i, input="-", target=target) for i, target in enumerate(tests)]
    task = inspect_ai.Task(samples, solver=replay(), scorer=verify(), sandbox=sandbox)
    given: dict[str, Any] = {"model": "mockllm/model", "display": "none", "log_dir": str(logs)}
    (log,) = inspect_ai.eval(task, **given)
    if log.status != "success":
        raise UserError(f"sandbox={sandbox}: inspect-ai ended with {log.error or log.status}")
    judged = {int(sample.id): sample.scores["verify"] for sample in log.samples or []}
    scores = [judged[i] for i in range(len(tests))]
    return [(s.value == "C", s.explanation.strip("`\n").splitlines()[-1]) for s in scores]


if __name__ == "__main__":
    command(Options, main)
