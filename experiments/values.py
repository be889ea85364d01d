"""Predictions of a run's policies along responses, beside Monte-Carlo values of the same states.

    python -m experiments.values runs=outputs/study-values out=outputs/values steps=25,50,100

The responses are to unseen problems: of the policy itself, of the base (the reference) and of the
data set. The first ones to each problem are cut, by default at line ends. From each cut the policy
and the reference continue k times, and the judge judges. `values.parquet` has a row for each cut,
and one for the end of every response:

- run, arm (of a study), seed, step (of the weights), writer, problem, response (its number in the
  part), cut (tokens before it), tokens (of the whole response), reward, accepted
- text: between the cut before and this one; empty where a response was not continued
- beta, and log_ratio: S_t = Σ log π_θ/π_ref of the tokens before the cut, in nats. A policy's
  implied value is Q_t = Q̂_0 + β S_t
- logp: Σ log π_θ of the same tokens
- critic: PPO's value of the state, at the end that of the state before the last token; of PRIME the
  probability of success that its reward model gives the tokens before the cut
- policy, policy_error, reference, reference_error: mean reward of the continuations, with its
  standard error; at the end the response's own reward
- soft: β log mean e^{r/β} of the reference's, the soft value that Q_t stands for

`values.csv` and `values.svg` say how good the predictions are (`analysis/values.py`).

Each (run, step, writer) is a file in OUT/parts. The same command resumes after Ctrl-C or kill -9.
The reference's continuations of responses of the base and of the data set are the same for all runs
of a seed, so they are made once. Processes for different writers may run side by side; then a call
with all writers joins their parts.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from typing import Any, Literal

import pandas as pd
import torch
from pydantic import PositiveFloat, PositiveInt
from rich.console import Console

from algorithms.base import Steps
from algorithms.spo import soft_value
from analysis import values
from analysis.runs import arm_of
from envs.caching import replace_file
from envs.tasks import open_task
from experiments.config.composition import recorded_config
from experiments.config.schema import RunConfig
from experiments.engines import open_engines
from experiments.engines.base import Sampling
from experiments.errors import UserError, command
from experiments.learner import batching
from experiments.learner.learner import Learner
from experiments.policy import loading
from experiments.replay.programs import JudgementCache, JudgingCosts, OfflinePrograms
from experiments.rollout.generate import Responder
from experiments.rollout.prefixes import continued_rewards, cut_points, estimate
from experiments.rollout.prompts import prompts_of
from experiments.run_dir import checkpoints
from experiments.run_dir.atomic_files import atomic_write
from experiments.run_dir.progress import Activity, Bars
from experiments.runtime.base import SINGLE_PROCESS, build_worker_parts
from experiments.runtime.judges import open_environments
from experiments.sample import Origin, Sample, seed_for

WRITERS = ("policy", "base", "data")
Cell = tuple[Path, int, str, Path, Path]  # checkpoint, step, writer, part, the reference's rewards
Cuts = Sequence[Sequence[int]]
Columns = Mapping[str, torch.Tensor]
Both = Sequence[Sequence[Sequence[Sequence[float]]]]  # rewards by sample, cut and continuation


@dataclass
class Options:
    """The command line."""

    runs: str  # run folders, or folders that hold some, with commas
    out: Path  # folder of values.parquet
    steps: str | None = None  # of the weights, with commas, or last; by default all that are kept
    writers: str = ",".join(WRITERS)  # of the responses
    split: Literal["tune", "choose", "test"] = "choose"
    problems: PositiveInt = 100  # the first ones of the split
    responses: PositiveInt = 8  # to each problem
    continued: PositiveInt = 2  # of these, those that are cut and continued
    cut: Literal["line", "token"] = "line"  # before each line that is not blank, or each token ...
    every: PositiveInt = 1  # ... of which only each so manieth is taken, the first one included
    k: PositiveInt = 64  # continuations of each cut
    beta: PositiveFloat = 0.05  # of the soft value, for algorithms that have none


def cells_of(folder: Path, config: RunConfig, options: Options) -> list[Cell]:
    """Return the parts of a run; a file's name holds all that it depends on. Raises UserError."""
    info = json.loads((folder / "run.json").read_text())
    asked = replace(options, runs="", out=Path(), steps=None, writers="")
    world = [info["policy"], info["data_hash"], config.task, config.model.dtype, asked]
    world += [config.engine.name, config.train.temperature, config.seed]
    seals = {checkpoints.step_of(f): f for f in folder.glob(f"checkpoints/*/{checkpoints.SEAL}")}
    kept = {str(step): step for step in seals} | {"last": max(seals, default=0)}
    named = options.steps.split(",") if options.steps else [*map(str, seals)]
    steps = sorted({kept.get(name.strip(), 0) for name in named})
    unfit = config.task.turns > 1 or config.train.reference_every is not None
    if unfit or min(steps, default=0) < 1:
        raise UserError(
            f"runs={folder} steps={options.steps}: values need its checkpoints (here of "
            f"{sorted(seals)}), task.turns=1 and train.reference_every=null"
        )
    cells = []
    for step, writer in product(steps, options.writers.split(",")):
        own = seed_for(world, folder.resolve(), seals[step].read_text())
        alike = own if writer == "policy" else seed_for(world, writer)
        part = options.out / "parts" / f"{folder.name}-{step}-{writer}-{own:x}.parquet"
        reference = part.with_name(f"reference-s{config.seed}-{writer}-{alike:x}.json")
        cells.append((seals[step].parent, step, writer, part, reference))
    return cells


def measure(config: RunConfig, cells: Sequence[Cell], options: Options, bars: Bars) -> None:
    """Write parts of one run. Raises UserError."""
    bar = bars.add_task(f"{config.algo.name}, seed {config.seed}", total=len(cells), note="parts")
    loading.set_up_torch(config.model.threads)
    config = replace(config, eval=replace(config.eval, kl_samples=1))  # which keeps the reference
    n, seed, limit = options.responses, config.seed, config.longest_response(1)
    sampling = Sampling(limit, config.train.temperature)
    places = Steps(options.cut, options.every, options.k)
    task, tokenizer = open_task(config.task), loading.load_tokenizer(config.model)
    prompts = prompts_of(options.split, task, tokenizer, config, True)[: options.problems]
    base = loading.load_policy(config.model)
    with open_environments(config) as environments:
        worker = build_worker_parts(config, base, tokenizer, environments, SINGLE_PROCESS)
        learner, judge, reward = worker.learner, environments.make(), config.task.reward
        assert learner.reference is not None
        engine = open_engines(config, base, tokenizer)(learner.reference)
        reference = Responder(engine, judge, tokenizer, reward, False, activity=bars.activity)
        policy = replace(reference, engine=worker.eval_engine)
        cache = JudgementCache(options.out / "parts" / "programs", judge, learner.ledger)
        costs = JudgingCosts(learner.ledger, "offline_programs")
        most = config.train.offline_per_problem
        offline = OfflinePrograms(cache, tokenizer, reward, limit, most, task.response, costs)

        for checkpoint, step, writer, part, stored in cells:
            learner.load_from(checkpoint)
            policy.engine.sync(learner.policy)
            bars.activity.begin(f"step {step}, responses of {writer}:")
            if writer == "data":
                samples = [s for p in prompts for s in offline.draw(p, n, seed)]
            else:
                by, name = (policy, step) if writer == "policy" else (reference, writer)
                streams = [(seed, name, prompt.problem.name) for prompt in prompts]
                seeds = [[seed_for(*stream, i) for i in range(n)] for stream in streams]
                _, samples = by.respond(prompts, seeds, sampling, Origin("policy", step=step))
            samples = [sample for sample in samples if sample.reward is not None]
            if not samples:
                raise UserError(f"writers={writer}: no response that fits has a verdict")
            names = pd.Series([sample.prompt.problem.name for sample in samples])
            cuts = [[*cut_points(s, places, tokenizer), len(s.tokens)] for s in samples]
            whole = [number >= options.continued for number in names.groupby(names).cumcount()]
            cuts = [own[-1:] if ends else own for own, ends in zip(cuts, whole, strict=True)]
            asked = (sampling, samples, cuts, options.k, seed, "values")
            ahead = continued_rewards(policy, *asked, step)
            known_by = seed_for([sample.tokens for sample in samples])  # some may lack a verdict
            stored = stored.with_stem(f"{stored.stem}-{known_by:x}")
            if not stored.exists():
                replace_file(stored, json.dumps(continued_rewards(reference, *asked)))
            rewards = (ahead, json.loads(stored.read_text()))
            known, beta = predictions(learner, samples), getattr(config.algo, "beta", options.beta)
            table = table_of(samples, cuts, known, rewards, beta, tokenizer.decode)
            with atomic_write(part) as file:
                table.assign(seed=seed, step=step, writer=writer).to_parquet(file)
            bars.advance(bar)
            bars.console.print(str(part), soft_wrap=True)


def predictions(learner: Learner, samples: Sequence[Sample]) -> dict[str, torch.Tensor]:
    """Return the columns log_ratio, logp and critic after 0 … all tokens, (batch, time + 1)."""
    tokens, pad = batching.pack(samples, learner.pad, learner.model.device), torch.nn.functional.pad
    logp, ref_logp = learner.logp(tokens), learner.ref_logp(tokens)
    algorithm: Any = learner.algorithm

    def sums(terms: torch.Tensor) -> torch.Tensor:
        return pad(terms.double().cumsum(-1), (1, 0))

    critic = torch.full_like(sums(logp), torch.nan)
    if algorithm.needs.critic == "log_probs":  # PRIME's reward model
        rewards = algorithm.config.beta * (learner.modules.values(tokens) - ref_logp)
        critic = sums(rewards).sigmoid()
    elif algorithm.needs.critic != "none":
        values, ends = learner.modules.values(tokens), tokens.mask.sum(-1, keepdim=True)
        critic = pad(values, (0, 1)).scatter(1, ends, values.gather(1, ends - 1))
    return {"log_ratio": sums(logp - ref_logp), "logp": sums(logp), "critic": critic}


def table_of(
    samples: Sequence[Sample], cuts: Cuts, known: Columns, rewards: Both, beta: float, decode: Any
) -> pd.DataFrame:
    """Return a row for each cut of the samples. `rewards`: of the policy and of the reference."""
    rows = []
    for i, (sample, own) in enumerate(zip(samples, cuts, strict=True)):
        response = (sample.prompt.problem.name, i, len(sample.tokens), sample.reward)
        for n, cut in enumerate(own):
            text = decode(sample.tokens[own[n - 1] : cut] if n else (), skip_special_tokens=True)
            ahead = [value for of in rewards for value in estimate(cut, of[i][n])[1:]]
            soft = float(soft_value(torch.tensor(rewards[1][i][n], dtype=torch.float64), beta))
            predicted = [float(column[i, cut]) for column in known.values()]
            rows.append((*response, sample.accepted, beta, cut, text, *predicted, *ahead, soft))
    columns = ["problem", "response", "tokens", "reward", "accepted", "beta", "cut", "text", *known]
    columns += ["policy", "policy_error", "reference", "reference_error", "soft"]
    return pd.DataFrame(rows, columns=columns)


def main(options: Options) -> None:
    """Write the table, the statistics and the figure. Raises UserError."""
    if unknown := sorted({*options.writers.split(",")} - {*WRITERS}):
        raise UserError(f"writers={unknown[0]}; choose from {', '.join(WRITERS)}")
    found = {f.parent for run in options.runs.split(",") for f in Path(run).rglob("run.json")}
    if not found:
        raise UserError(f"runs={options.runs}: no run folder; they are in outputs/NAME/")
    arms = {folder: arm_of(folder) for folder in sorted(found)}
    if lost := [folder for folder, arm in arms.items() if arm is None and any(arms.values())]:
        raise UserError(
            f"runs={lost[0]}: the study's arms.json names other runs and not this one; call "
            "experiments.study with all arms once more, which keeps finished runs"
        )
    runs = {folder: recorded_config(folder, f"runs={folder}") for folder in arms}
    cells = {folder: cells_of(folder, config, options) for folder, config in runs.items()}
    (options.out / "parts").mkdir(parents=True, exist_ok=True)
    tables = []
    with Bars(Activity(), Console(stderr=True, highlight=False)) as bars:
        for folder, config in runs.items():
            if missing := [cell for cell in cells[folder] if not cell[3].exists()]:
                measure(config, missing, options, bars)
            of_run = pd.concat([pd.read_parquet(cell[3]) for cell in cells[folder]])
            tables.append(of_run.assign(run=str(folder), arm=arms[folder] or config.algo.name))
    table = pd.concat(tables, ignore_index=True)
    with atomic_write(options.out / "values.parquet") as file:
        table.to_parquet(file)
    values.summary(table).to_csv(options.out / "values.csv", index=False, float_format="%.5g")
    (options.out / "values.svg").write_text(values.figure(table), encoding="utf-8")
    print(f"{options.out}: values.parquet, values.csv, values.svg")


if __name__ == "__main__":
    command(Options, main)
