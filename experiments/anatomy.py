"""`make anatomy`: the gradients of all objectives on the same batches, side by side.

One short run of GRPO without a KL gives the policies: the base, a half-trained and a nearly
collapsed one. Each generates batches, one per seed. Every objective's gradient is taken on them at
the policy that generated them (fresh) and at the same run's policy `lag` steps later (stale). The
gradient is that of one optimiser step, from the learner that runs use, before clipping and Adam.

Critics predict 0, as at the start of a run. The average of PPO-EWMA is the rollout policy.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import jinja2
import numpy as np
import pandas as pd
import torch
import yaml
from torch import Tensor

import algorithms
from algorithms.base import Algorithm, Batch, PolicyOutput
from analysis.figures import Axis, Series, legend_panel
from analysis.rendering import markdown_table
from experiments.build import Parts, build
from experiments.config.composition import config_of
from experiments.config.preflight import resolve_defaults
from experiments.errors import UserError, command
from experiments.learner.learner import Learner
from experiments.policy import loading
from experiments.policy.policy import Policy, copy_weights
from experiments.rollout.initial_values import InitialValues
from experiments.rollout.rollouts import Rollouts
from experiments.run_dir.ledger import Ledger
from experiments.run_dir.records import Records
from experiments.sample import Sample
from experiments.trainer import train

STAGES = {"base": 0, "half-trained": 10, "collapsed": 70}  # steps of the policies
LAG = 10  # steps between a stale batch and the policy
PROMPTS, GROUP = 16, 8  # of a batch
SEED, BATCHES = 41, 2  # of the run and the batches; batches of each policy
PAGE = Path(__file__).with_name("anatomy.md.j2")
COMPARED = yaml.safe_load(PAGE.with_name("anatomy.yaml").read_text(encoding="utf-8"))
NEIGHBOURS: list[str] = COMPARED["neighbours"]
BY_RATE: dict[str, dict[str, Any]] = COMPARED["by_rate"]
EQUAL, SAME = 0.999, 0.9999  # cosines
# A policy that is trained on few problems soon solves them, each with few programs.
TASK = ("task=mini", "task.train_problems=32", "name=anatomy")
POLICY_RUN = (*TASK, "algo=grpo", "algo.kl_coef=0", "algo.learning_rate=1e-3")
QUIET = ("task.choose_problems=8", "eval.every=0", "eval.samples=1", "eval.k=[1]")
CHECKLESS = ("eval.kl_samples=0", "engine.logprob_check_every=0", "sandbox.verdict_cache=true")


@dataclass
class Options:
    """The command line."""

    out: Path = Path("docs/results/anatomy.md")  # the page; all cosines are in a CSV file beside it
    output_dir: Path = Path("outputs")  # folder of the run that gives the policies
    only: str | None = None  # some objectives, with commas between them; by default all


# The compared objectives


@dataclass(frozen=True)
class Objective:
    """An algorithm with options, and the data that it is given.

    own: the policy's responses. mixed: the second half of each group is offline programs. replayed:
    the second half counts as replayed.
    """

    algo: str
    options: Mapping[str, Any] = field(default_factory=dict)
    data: str = "own"
    low: float = 0.0  # rewards run from `low` to `high`
    high: float = 1.0
    # steps from the reference to the policy, of a reference that moves; None: the base
    reference_age: int | None = None

    def samples(self, own: Sequence[Sample], mixed: Sequence[Sample]) -> list[Sample]:
        """Return its form of a batch."""
        chosen = list(mixed if self.data == "mixed" else own)
        if self.data == "replayed":
            for row, sample in enumerate(chosen):
                late = row % GROUP >= GROUP // 2
                chosen[row] = replace(sample, replayed=row) if late else sample
        scale = self.high - self.low
        return [replace(s, reward=self.low + scale * (s.reward or 0.0)) for s in chosen]


def objectives() -> dict[str, Objective]:
    """Return every algorithm at its defaults, and variants of SPO, GRPO and PPO, by name.

    Those that continue responses from cuts are left out: their gradient needs an engine.
    """
    data = {"": "own", "offline_share": "mixed", "replay_share": "replayed"}
    found = {
        name: Objective(name, data=data[algorithms.make(name).needs.share])
        for name in algorithms.names()
        if algorithms.make(name).needs.step_values is None
    }
    return found | {name: Objective(**fields) for name, fields in COMPARED["variants"].items()}


# The weight of a prompt by its success rate

RATE_GROUP = 40


def prompt_weight(name: str, rate: float) -> float:
    """Return w of the slopes −w (r − p)/n on the log-probs of a group's n responses of one token.

    Where π = μ = π_ref and a share p = `rate` of them succeeds. NaN if no w fits all of them.
    """
    rewards = (torch.arange(RATE_GROUP) < round(rate * RATE_GROUP)).double()
    logp = torch.full((RATE_GROUP, 1), -1.0, dtype=torch.float64, requires_grad=True)
    ones, old = torch.ones(RATE_GROUP, dtype=torch.bool), logp.detach()
    batch = Batch(ones.unsqueeze(-1), rewards, ones, ones, RATE_GROUP)
    batch = replace(batch, behaviour_logp=old, rollout_logp=old, ref_logp=old, policy_logp=old)
    algorithm = algorithms.make(name, **BY_RATE[name])
    algorithm.loss(PolicyOutput(logp, logp), algorithm.prepare(batch))[0].backward()
    assert logp.grad is not None
    weights = -RATE_GROUP * logp.grad.flatten() / (rewards - rewards.mean())
    fits = torch.allclose(weights, weights[:1].expand(RATE_GROUP), rtol=1e-6)
    return float(weights[0]) if fits else math.nan


def rate_figure() -> str:
    """Return an SVG of `prompt_weight` over success rates, relative to that at one half."""
    rates = np.arange(2, RATE_GROUP - 1, 2) / RATE_GROUP
    lines = {n: np.array([prompt_weight(n, rate) for rate in rates]) for n in BY_RATE}
    series = [Series(n, rates, y / y[len(y) // 2], markers=False) for n, y in lines.items()]
    x, y = Axis("success rate p of a prompt", 0, 1), Axis("weight of r − p", 0, 6)
    return legend_panel("weight of a prompt by its success rate", x, y, series).file()


# Policies and batches


class Policies:
    """The policies of one run by their steps; 0 is the bundled model."""

    def __init__(self, folder: Path) -> None:
        last = max(STAGES.values()) + LAG
        settings = (f"steps={last}", "train.keep_checkpoints=1000", "train.checkpoint_every=10")
        self.overrides = [*POLICY_RUN, *QUIET, *CHECKLESS, *settings]
        outcome = train(config_of([*self.overrides, f"output_dir={folder}"]))
        if outcome.status != "finished" or outcome.folder is None:
            raise UserError(f"the run that makes the policies: {outcome.error or outcome.status}")
        self.last, self.checkpoints = last, outcome.folder / "checkpoints"

    def at(self, step: int) -> Policy:
        """Return the policy after a multiple of ten steps; the bundled model up to 0."""
        name = "final" if step == self.last else f"step-{step}"
        path = (self.checkpoints / name).resolve()
        chosen = ["model=local", f"model.path={path}"] if step > 0 else []
        policy, _ = loading.load(config_of([*chosen, "model.dtype=float32"]).model)
        policy.version = max(0, step)
        return policy


Batches = list[tuple[list[Sample], list[Sample]]]  # own and mixed samples of each seed


def generate(parts: Parts, policy: Policy, seeds: int) -> Batches:
    """Return a policy's batches, of the same problems for each policy."""
    rollouts = parts.rollouts
    assert isinstance(rollouts, Rollouts)
    rollouts.responder.engine.sync(policy)
    rollouts.load_state_dict({"taken": 0})
    batches: Batches = []
    for step in range(1, seeds + 1):
        samples = rollouts.collect(step)
        groups = [samples[i : i + 2 * GROUP] for i in range(0, len(samples), 2 * GROUP)]
        own = [sample for group in groups for sample in group[:GROUP]]
        half = GROUP // 2  # fresh ones, then as many offline ones
        halves = [[*group[:half], *group[GROUP : GROUP + half]] for group in groups]
        batches.append((own, [sample for group in halves for sample in group]))
    return batches


# Gradients


@dataclass(frozen=True)
class Bench:
    """A situation with one reference: who generated the batches, and who is trained on them."""

    reference: Policy
    rollout: Policy
    policy: Policy
    parts: Parts

    def gradient(self, algorithm: Algorithm, samples: Sequence[Sample]) -> tuple[Tensor, float]:
        """Return an optimiser step's gradient before clipping, (parameters,), and its share of
        weight on rejected responses of the policy's own: of Σ_t |∂L/∂log π(a_t)|."""
        needs = algorithm.needs
        trained = loading.own_copy(self.reference)
        trained.model.requires_grad_(True)
        # One micro-batch; the rate does not matter, since the learner is dropped after its step.
        settings = (f"train.micro_batch={len(samples)}", "train.max_grad_norm=null")
        config = config_of([*settings, "train.warmup_steps=0"]).train
        pad = self.parts.learner.pad
        learner = Learner(trained, pad, algorithm, config, 1, Ledger())
        copy_weights(self.policy, learner.policy)
        if "average" in needs.copies:
            copy_weights(self.rollout, learner.modules.past.policies["average"])
        learner.batches = needs.critic_warmup  # from here on the policy learns
        values = None
        if needs.initial_value != "none":
            assert self.parts.initial_values
            values = InitialValues(self.parts.initial_values.reference, algorithm)
        parameters = learner.optimiser.param_groups[0]["params"]
        parts: list[Tensor] = []

        def keep(*_: Any) -> None:
            found = (torch.zeros_like(p) if p.grad is None else p.grad for p in parameters)
            parts.extend(gradient.flatten().clone() for gradient in found)

        learner.optimiser.register_step_pre_hook(keep)
        metrics = learner.update(samples, GROUP, values)
        size = sum(p.numel() for p in parameters)
        gradient = torch.cat(parts) if parts else torch.zeros(size)
        return gradient, metrics.get("weight/rejected", math.nan)


def cosines(vectors: Sequence[Tensor], chunk: int = 1 << 16) -> Tensor:
    """Return the cosines of all pairs, (n, n), added up in float64; NaN for a vector of zeros."""
    total = torch.zeros(len(vectors), len(vectors), dtype=torch.float64)
    for start in range(0, len(vectors[0]), chunk):
        part = torch.stack([vector[start : start + chunk] for vector in vectors]).double()
        total += part @ part.T
    norms = total.diagonal().sqrt()
    return total / norms.outer(norms)


def compare(
    situation: str,
    bench: Bench,
    moved: Mapping[int, Policy],
    chosen: Mapping[str, Objective],
    batches: Batches,
) -> pd.DataFrame:
    """Return a row for each objective, with its cosines to all, means over seeds.

    `moved`: by their age, references that move.
    """
    rows, gradients = [], []
    for name, objective in chosen.items():
        algorithm = algorithms.make(objective.algo, objective.high, **objective.options)
        age, max_lag = objective.reference_age, algorithm.needs.max_lag
        here = bench if age is None else replace(bench, reference=moved[age])
        row: dict[str, Any] = {"situation": situation, "objective": name, "data": objective.data}
        rows.append(row)
        if "stale" in situation and max_lag is not None and max_lag < LAG:
            gradients += [torch.zeros(bench.policy.model.num_parameters())] * len(batches)
            continue
        shares = []
        for seed, batch in enumerate(batches):
            gradient, rejected = here.gradient(algorithm, objective.samples(*batch))
            gradients.append(gradient)
            row[f"norm {seed}"] = float(gradient.double().norm())
            shares.append(rejected)
        row["rejected"] = sum(shares) / len(shares)
    seeds = range(len(batches))
    table = cosines(gradients).view(len(chosen), len(seeds), len(chosen), len(seeds))
    for number, row in enumerate(rows):
        pairs = [float(table[number, a, number, b]) for a in seeds for b in seeds if a < b]
        row["between batches"] = sum(pairs) / len(pairs) if pairs else math.nan
    mean = torch.stack([table[:, seed, :, seed] for seed in seeds]).nanmean(0)
    return pd.concat(
        [pd.DataFrame(rows), pd.DataFrame(mean, columns=[f"cos {n}" for n in chosen])], axis=1
    )


def main(options: Options) -> None:
    """Measure and write the page and its CSV file."""
    chosen = objectives()
    if options.only:
        listed = options.only.split(",")
        if unknown := sorted({*listed} - {*chosen}):
            raise UserError(f"only={unknown[0]}: choose from {', '.join(chosen)}")
        chosen = {name: chosen[name] for name in listed}
    torch.set_num_threads(1)
    policies, tables, facts = Policies(options.output_dir), [], []
    # Its parts provide the batches: groups twice as large, half of them offline.
    given = [*TASK, *QUIET, *CHECKLESS, "algo=spo", "algo.q0=monte_carlo", "steps=1"]
    given += ["train.offline_share=0.5", f"train.group_size={2 * GROUP}", f"seed={SEED}"]
    given += [f"train.prompts={PROMPTS}", f"output_dir={options.output_dir}"]
    config = resolve_defaults(config_of(given), "cpu")
    base = policies.at(0)
    for stage, step in STAGES.items():
        # The run takes no step. Its reference and reference rewards are those of the base.
        records = Records(config)
        with build(config, records) as parts:
            rollout = policies.at(step)
            batches = generate(parts, rollout, BATCHES)
            solved = np.mean([sample.accepted for own, _ in batches for sample in own])
            facts.append([stage, str(step), f"{solved:.3f}"])
            for age, late in (("fresh", 0), ("stale", LAG)):
                bench = Bench(base, rollout, policies.at(step + late) if late else rollout, parts)
                ages = {o.reference_age for o in chosen.values() if o.reference_age is not None}
                moved = {ago: policies.at(step + late - ago) for ago in ages}
                tables.append(compare(f"{stage}, {age}", bench, moved, chosen, batches))
                print(f"{stage}, {age}: {len(chosen)} objectives", flush=True)
        records.finish("finished")
    found = pd.concat(tables, ignore_index=True)
    options.out.with_suffix(".svg").write_text(rate_figure())
    found.to_csv(options.out.with_suffix(".csv"), index=False, float_format="%.5g")
    options.out.write_text(page(found, facts, " ".join(policies.overrides)) + "\n")
    print(f"wrote {options.out}")


# The page


def classes(table: np.ndarray, names: Sequence[str], least: float) -> str:
    """Return groups of names whose cosines are all at least `least`, the largest first."""
    from scipy.cluster.hierarchy import fcluster, linkage
    from scipy.spatial.distance import squareform

    if len(names) < 2:
        return "none"
    distances = np.clip(1 - np.nan_to_num(table, posinf=0), 0, 2)
    np.fill_diagonal(distances, 0)
    tree = linkage(squareform((distances + distances.T) / 2, checks=False), "complete")
    groups = pd.Series(names).groupby(fcluster(tree, 1 - least, "distance")).agg(list)
    alike = sorted((g for g in groups if len(g) > 1), key=lambda g: (-len(g), g))
    return "; ".join("{" + ", ".join(group) + "}" for group in alike) or "none"


def page(found: pd.DataFrame, facts: Sequence[Sequence[str]], overrides: str) -> str:
    """Return the page on the table of all objectives; `facts` are the rows on the policies."""
    names = list(found["objective"].unique())
    by = {str(s): part.set_index("objective") for s, part in found.groupby("situation", sort=False)}
    tables = {s: part[[f"cos {name}" for name in names]].to_numpy() for s, part in by.items()}
    shown = [name for name in NEIGHBOURS if name in names]
    cosines = [
        [name, situation, *(_number(part.at[name, f"cos {other}"]) for other in shown)]
        for name in shown
        for situation, part in by.items()
    ]
    rejected = [
        [name, *(_number(part.at[name, "rejected"]) for part in by.values())] for name in shown
    ]
    least = np.where(np.isnan(stacked := np.stack([*tables.values()])), np.inf, stacked).min(0)
    groups = [(f"{s}, at least {EQUAL}", classes(t, names, EQUAL)) for s, t in tables.items()]
    groups.append((f"all situations, at least {SAME}", classes(least, names, SAME)))
    return jinja2.Template(PAGE.read_text(encoding="utf-8"), trim_blocks=True).render(
        lag=LAG,
        overrides=overrides,
        groups=groups,
        cosines=markdown_table(["objective", "situation", *shown], cosines),
        rejected=markdown_table(["objective", *by], rejected),
        policies=markdown_table(["policy", "steps", "accepted in its batches"], facts),
    )


def _number(value: Any) -> str:
    return "–" if math.isnan(value) else f"{value:.2f}".replace("-", "−")


if __name__ == "__main__":
    command(Options, main)
