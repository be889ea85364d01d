"""An evaluation's programs judged again by inspect-ai's MBPP: `make calibrate`, end to end.

    python run.py task=mbpp task.path=ROWS model=NAME steps=0 eval.split=test eval.samples=10
    python -m experiments.calibrate run=FOLDER rows=ROWS

Prints both judges' pass@k of the same programs with intervals, and each program on which they
differ with both reasons. The other judge is `inspect_evals/mbpp`: it takes the code block out of
the response, appends the row's `test_list`, and runs all of it with python.

With `written=true` inspect-ai then writes as many responses of its own, with transformers'
`generate`, from the same weights, prompts and sampling, and judges them: none of our code has a
part in that score but the prompt's words.
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
from envs.tasks import open_task
from experiments.config.composition import recorded_config
from experiments.config.schema import RunConfig
from experiments.errors import UserError, command
from experiments.policy import loading

OTHER = "inspect_evals/mbpp"


@dataclass
class Options:
    """The command line."""

    run: Path  # a run folder of task=mbpp, whose last evaluation counts
    rows: Path  # MBPP's rows, FILE.jsonl
    # inspect-ai's sandbox; local runs the programs on this machine, isolated from nothing
    sandbox: Literal["docker", "local"] = "docker"
    written: bool = False  # inspect-ai writes responses too


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
    for name, judge in (("ours", "SPO-Bench"), ("theirs", OTHER)):
        print_scores(judge, evals.groupby("problem")[name].agg(["size", "sum"]))
    differ = evals[evals.ours != evals.theirs]
    print(f"the judges differ on {len(differ)} of {len(evals)} programs")
    for row in differ.itertuples():
        ours = f"{row.verdict}, {row.passed} of {row.total} tests"
        print(f"{row.problem} sample {row.sample}: ours {ours}; theirs {row.reason}")
    if options.written:
        targets = {name: rows[name]["test_list"] for name in dict.fromkeys(evals.problem)}
        config = recorded_config(options.run, f"run={options.run}")
        counts = inspect_written(config, targets, options.sandbox, options.run / "inspect")
        print_scores(f"{OTHER}, its own responses", counts)


def print_scores(judge: str, counts: pd.DataFrame) -> None:
    """Print pass@1 and pass@10 of (responses, accepted ones), a row for each problem."""
    scores = (score(counts, k) for k in (1, 10) if k <= counts.iloc[:, 0].min())
    print(f"{judge}, {len(counts)} problems: {', '.join(scores)}")


def score(counts: pd.DataFrame, k: int) -> str:
    """Return pass@k with the half-width of its 95 % interval over problems."""
    each = pd.Series([pass_at_k(n, right, k) for n, right in counts.to_numpy().tolist()])
    return f"pass@{k} {each.mean():.3f} ± {1.96 * each.std() / math.sqrt(len(each)):.3f}"


def inspect_judged(
    responses: list[str], tests: list[list[str]], sandbox: str, logs: Path
) -> list[tuple[bool, str]]:
    """Return whether inspect-ai accepts each response, and its reason in a line."""

    async def replay(state: Any, _: Any) -> Any:
        state.output.completion = responses[int(state.sample_id)]
        return state

    samples = [{"id": i, "input": "-", "target": target} for i, target in enumerate(tests)]
    log = inspected(samples, lambda: replay, sandbox, {"model": "mockllm/model", "log_dir": logs})
    judged = {int(sample.id): sample.scores["verify"] for sample in log}
    scores = [judged[i] for i in range(len(tests))]
    return [(s.value == "C", s.explanation.strip("`\n").splitlines()[-1]) for s in scores]


def inspect_written(
    config: RunConfig, targets: dict[str, list[str]], sandbox: str, logs: Path
) -> pd.DataFrame:
    """Let inspect-ai write and judge `eval.samples` responses to each problem of `targets`.

    Returns (responses, accepted ones) of each. Raises UserError for prompts that are no chat.
    """
    from inspect_ai.model import GenerateConfig, get_model
    from inspect_ai.solver import generate

    task, evaluation = open_task(config.task), config.eval
    if not config.task.chat or task.shots() or config.model.chat_args:
        raise UserError("written=true needs task.chat=true task.few_shot=0 model.chat_args={}")
    loading.load_policy(config.model).model.save_pretrained(logs / "model")
    loading.load_tokenizer(config.model).save_pretrained(logs / "model")
    problems = [p for p in getattr(task, evaluation.split) if p.name in targets]
    samples = [{"id": p.name, "input": task.prompt(p), "target": targets[p.name]} for p in problems]
    sampling = GenerateConfig(
        temperature=evaluation.temperature,
        top_p=evaluation.top_p,
        top_k=0,  # none, in place of transformers' 50
        max_tokens=config.longest_response(1),
        seed=config.seed,
    )
    model = get_model(f"hf/{logs}/model", config=sampling)  # a name would be asked of the hub
    given = {"model": model, "log_dir": logs, "epochs": evaluation.samples}
    log = inspected(samples, generate, sandbox, given)
    right = pd.Series([s.scores["verify"].value == "C" for s in log], [s.id for s in log])
    return right.groupby(level=0).agg(["size", "sum"])


def inspected(samples: list[dict[str, Any]], by: Any, sandbox: str, given: dict[str, Any]) -> Any:
    """Return the samples of inspect-ai's log; `by`: makes the solver. Raises UserError."""
    try:
        import inspect_ai
        from inspect_ai.dataset import Sample
        from inspect_ai.solver import solver
        from inspect_evals.mbpp.mbpp import verify
    except ImportError as error:
        raise UserError(f"{error.name} is not installed; pip install -e '.[inspect]'") from error

    rows, solved = [Sample(**sample) for sample in samples], solver(by)()
    task = inspect_ai.Task(rows, solver=solved, scorer=verify(), sandbox=sandbox)
    (log,) = inspect_ai.eval(task, display="none", **given | {"log_dir": str(given["log_dir"])})
    if log.status != "success":
        raise UserError(f"sandbox={sandbox}: inspect-ai ended with {log.error or log.status}")
    return log.samples


if __name__ == "__main__":
    command(Options, main)
