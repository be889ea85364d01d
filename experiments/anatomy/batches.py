"""The policies of the anatomy, and what each generates: batches, and groups made by hand."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from analysis.metrics import distinct_share
from analysis.normal_form import normal_form
from experiments.anatomy.objectives import reference_ages
from experiments.anatomy.options import Options
from experiments.build import Parts, build
from experiments.config.composition import config_of
from experiments.config.resolve_defaults import resolve_defaults
from experiments.config.schema import RunConfig
from experiments.errors import UserError
from experiments.policy import loading
from experiments.policy.policy import Policy
from experiments.rollout.generate import Responder
from experiments.rollout.rollouts import Rollouts
from experiments.run_dir.records import Records
from experiments.sample import Origin, PromptedProblem, Sample
from experiments.seeds import seed_for
from experiments.trainer import train

# A policy that is trained on few problems soon solves them, each with few programs.
TASK = ("task=mini", "task.train_problems=32", "name=anatomy")
POLICY_RUN = (*TASK, "algo=grpo", "algo.kl_coef=0", "algo.learning_rate=1e-3")
QUIET = ("task.choose_problems=8", "eval.every=0", "eval.samples=1", "eval.k=[1]")
CHECKLESS = ("eval.kl_samples=0", "engine.logprob_check_every=0", "sandbox.verdict_cache=true")


def policy_steps(options: Options) -> list[int]:
    """Return the steps after which a policy is needed, or a reference of it; the base's is not."""
    ages = (0, options.half, options.collapsed)
    policies = [age + late for age in ages for late in (0, options.lag)]
    references = [step - age for step in policies for age in reference_ages()]
    return sorted({step for step in (*policies, *references) if step > 0})


def policy_folders(options: Options) -> tuple[dict[int, Path], str]:
    """Return steps → folder of weights, trained once; and the command of that run."""
    steps = policy_steps(options)
    given = [*POLICY_RUN, *QUIET, *CHECKLESS, f"steps={steps[-1]}", "train.keep_checkpoints=1000"]
    given += [f"train.checkpoint_every={math.gcd(*steps)}", f"output_dir={options.output_dir}"]
    digest = hashlib.sha256(repr(given).encode()).hexdigest()[:16]
    note = Path(options.output_dir) / ".cache" / "anatomy" / f"{digest}.json"
    folder = Path(json.loads(note.read_text())) if note.exists() else None
    if folder is None or not (folder / "checkpoints" / "final").is_dir():
        outcome = train(config_of(given))
        if outcome.status != "finished" or outcome.folder is None:
            raise UserError(f"the run that makes the policies: {outcome.error or outcome.status}")
        folder = outcome.folder
        note.parent.mkdir(parents=True, exist_ok=True)
        note.write_text(json.dumps(str(folder)))
    names = {step: f"step-{step}" for step in steps} | {steps[-1]: "final"}
    command = "python run.py " + " ".join(given[:-1])
    return {step: folder / "checkpoints" / name for step, name in names.items()}, command


def policy_at(step: int, folders: Mapping[int, Path]) -> Policy:
    """Return the policy after so many steps; 0: the bundled model."""
    chosen = ["model=local", f"model.path={folders[step].resolve()}"] if step else []
    model = replace(config_of([*chosen, "model.dtype=float32"]).model, name="nano")
    policy, _ = loading.load(model)
    policy.version = step
    return policy


@dataclass(frozen=True)
class Batches:
    """What one policy generated."""

    own: list[list[Sample]]  # one batch per seed
    mixed: list[list[Sample]]  # the same, with offline programs in the second half of each group
    pool: dict[str, list[Sample]]  # more responses to the same problems, by problem


@contextmanager
def opened(options: Options) -> Iterator[tuple[Parts, Records, RunConfig]]:
    """Build a run's parts, which provide the batches: groups twice as large, half of them offline.

    The run takes no step. Its reference and reference rewards are those of the base.
    """
    given = [*TASK, "algo=spo", "algo.q0=monte_carlo", "steps=1"]
    given += ["train.offline_share=0.5", f"train.group_size={2 * options.group}", *QUIET]
    given += [f"train.prompts={options.prompts}", f"seed={options.seed}", *CHECKLESS]
    config = resolve_defaults(config_of([*given, f"output_dir={options.output_dir}"]), "cpu")
    records = Records(config)
    with build(config, records) as parts:
        yield parts, records, config
    records.finish("finished")


def generate(parts: Parts, config: RunConfig, policy: Policy, options: Options) -> Batches:
    """Return the batches of a policy, of the same problems for every policy."""
    rollouts, size = parts.rollouts, options.group
    assert isinstance(rollouts, Rollouts)
    rollouts.engine.sync(policy)
    rollouts.load_state_dict({"taken": 0})
    own, mixed = [], []
    prompts: dict[str, PromptedProblem] = {}
    for step in range(1, options.seeds + 1):
        samples = rollouts.collect(step)
        groups = [samples[i : i + 2 * size] for i in range(0, len(samples), 2 * size)]
        own.append([sample for group in groups for sample in group[:size]])
        halves = [[*group[: size - size // 2], *group[size : size + size // 2]] for group in groups]
        mixed.append([sample for half in halves for sample in half])
        prompts |= {group[0].prompt.problem.name: group[0].prompt for group in groups}
    responder = Responder(
        rollouts.engine, parts.judge, parts.tokenizer, config.task.reward, overlap=False
    )
    seeds = [
        [seed_for(config.seed, "pool", name, i) for i in range(options.pool)] for name in prompts
    ]
    origin = Origin("policy", "pool", 1)
    _, extra = responder.respond(list(prompts.values()), seeds, rollouts.sampling, origin)
    pool: dict[str, list[Sample]] = {name: [] for name in prompts}
    for sample in extra:
        if sample.reward is not None:
            pool[sample.prompt.problem.name].append(sample)
    return Batches(own, mixed, pool)


def quality(pool: Mapping[str, Sequence[Sample]], m: int = 5) -> tuple[float, float]:
    """Return pass@1, and the distinct share of m accepted programs where a problem has as many."""
    shares, distinct = [], []
    for samples in pool.values():
        accepted = [s.judgement.program for s in samples if s.accepted]
        shares.append(len(accepted) / max(1, len(samples)))
        if len(accepted) >= m:
            distinct.append(distinct_share([normal_form(p) or p for p in accepted], m))
    return sum(shares) / len(shares), sum(distinct) / len(distinct) if distinct else math.nan


def made_groups(pool: Mapping[str, Sequence[Sample]], size: int, count: int) -> list[Sample]:
    """Return groups that are all right, all wrong and half right, of the same `count` problems.

    The problems are those with the most of the rarer kind; responses repeat where they are too few.
    """
    kinds = []
    for samples in pool.values():
        right, wrong = ([s for s in samples if s.accepted is kind] for kind in (True, False))
        if right and wrong:
            kinds.append((right, wrong))
    kinds = sorted(kinds, key=lambda kind: -min(map(len, kind)))[:count]
    made: list[Sample] = []
    for accepted in (size, 0, size // 2):
        for right, wrong in kinds:
            made += [right[i % len(right)] for i in range(accepted)]
            made += [wrong[i % len(wrong)] for i in range(size - accepted)]
    return made
