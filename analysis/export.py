"""Results for other tools: `python -m analysis.export runs=FOLDER out=FILE`.

out=FILE.eval: one evaluation of one run as a log of inspect-ai, whose viewer shows each sample with
its prompt, program and verdict (`inspect view --log-dir FOLDER`). out=FILE.csv: a row for each arm,
seed, evaluated step and problem of a run, a study or a packed study, with n judged and c accepted
samples.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from analysis.experiment import run_command
from analysis.metrics import counts_at_step, pass_scores
from analysis.runs import Run, RunError, load_run
from analysis.study_frames import read_study
from envs.command_line import quiet_when_unread


@dataclass
class Options:
    """The command line."""

    runs: Path  # a run folder; for .csv also a study's folder or a packed study
    out: Path  # a file that ends in .eval or .csv
    step: int | None = None  # .eval: the evaluation; null: the last


def main(arguments: Sequence[str]) -> int:
    """Run the command and return the exit code of `run_command`."""
    return run_command(Options, lambda options: None, export, arguments)


def export(options: Options) -> int:
    """Write the file."""
    runs, out = options.runs, options.out
    if out.suffix == ".csv":
        read_study(runs).counts.to_csv(out, index=False)
    elif out.suffix == ".eval":
        run = load_run(runs)
        step = options.step if options.step is not None else max(run.evaluated_steps, default=0)
        if step not in run.evaluated_steps:
            raise RunError(f"step={step}: {runs} was evaluated at {run.evaluated_steps}")
        write_log(run, step, out)
    else:
        raise RunError(f"out={out}: must end in .eval or .csv")
    return 0


def write_log(run: Run, step: int, out: Path) -> None:
    """Write the evaluation at a step as a log of inspect-ai. Raises RunError without inspect-ai."""
    try:
        from inspect_ai import log, model, scorer
    except ImportError as error:
        install = "pip install --constraint constraints.txt --editable '.[inspect]'"
        raise RunError(f"out={out}: inspect-ai is not installed ({install})") from error
    prompts, samples = run.prompts(), []
    for row in run.evaluation(step).to_dict("records"):
        name, verdict, program = row["problem"], row["verdict"], row["program"] or ""
        value = scorer.CORRECT if verdict == "ACCEPTED" else scorer.INCORRECT
        score = scorer.Score(value=value, answer=program, explanation=verdict)
        prompt = model.ChatMessageUser(content=prompts.get(name, name))
        output = model.ModelOutput.from_content(run.algo, f"```python\n{program}\n```")
        sample = log.EvalSample(
            id=name,
            epoch=row["sample"] + 1,
            input=prompt.text,
            target="",
            messages=[prompt, output.message],
            output=output,
            scores=None if verdict == "INFRA_ERROR" else {"verdict": score},
            metadata={str(key): str(row[key]) for key in row if key not in ("problem", "program")},
        )
        samples.append(sample)
    scores = pass_scores(counts_at_step(run, step), run.ks)
    metrics = {k: log.EvalMetric(name=k, value=one.mean()) for k, one in scores.items()}
    spec = log.EvalSpec(
        created=run.info["started"],
        task=f"{run.config['task']['name']} step {step}",
        dataset=log.EvalDataset(name=run.name),
        model=f"{run.algo}/{run.info['model']}",
        config=log.EvalConfig(epochs=max(sample.epoch for sample in samples)),
    )
    of_all = [log.EvalScore(name="verdict", scorer="verdict", metrics=metrics)]
    number = len(samples)
    results = log.EvalResults(total_samples=number, completed_samples=number, scores=of_all)
    whole = log.EvalLog(status="success", eval=spec, results=results, samples=samples)
    log.write_eval_log(whole, str(out))


if __name__ == "__main__":
    with quiet_when_unread():
        sys.exit(main(sys.argv[1:]))
