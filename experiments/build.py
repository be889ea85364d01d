"""From a configuration to the parts of a run; what the algorithm does not need is not made."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from envs.environment import Environment
from envs.import_by_name import load_function
from envs.problem import Problem
from envs.tasks import open_task
from envs.tasks.task import Task
from experiments.config.schema import RunConfig
from experiments.distributed.single_process import SINGLE_PROCESS
from experiments.distributed.worker_parts import WorkerParts, build_worker_parts
from experiments.engines.base import Engine, Sampling
from experiments.engines.weight_sync import WeightSync
from experiments.errors import UserError
from experiments.evaluation.logprob_check import LogprobCheck
from experiments.learner.learner import Learner
from experiments.learner.memory_check import check_memory
from experiments.policy import loading
from experiments.replay.frozen_batches import FrozenBatches
from experiments.replay.sample_log import SampleLog
from experiments.rollout.batch_sources import open_batches
from experiments.rollout.environments import Environments
from experiments.rollout.generation import overlaps
from experiments.rollout.initial_values import InitialValues, ReferenceRewards
from experiments.rollout.prompts import Prompts, encode_prompts
from experiments.rollout.reward_shaping import RewardShaping
from experiments.rollout.rollouts import Rollouts
from experiments.run_dir.budget import Ledger
from experiments.run_dir.records import Records
from experiments.runtime import Runtime
from experiments.sample import PromptedProblem


@dataclass
class Parts:
    """Everything that the loop works with."""

    learner: Learner
    weight_sync: WeightSync  # the behaviour policy: its engine, and which weights it holds
    eval_engine: Engine  # the trained weights
    tokenizer: object
    environments: Environments
    rollouts: Rollouts | FrozenBatches
    prefetch: Callable[[int], None]  # begins a batch, and those after it, where that can be
    sample_log: SampleLog | None
    reward_shaping: RewardShaping  # of the rewards that a batch is learned from
    logprob_check: LogprobCheck  # of the behaviour policy's engine against the learner
    judge: Environment  # of training responses; the budget counts its work
    eval_judge: Environment
    eval_prompts: Sequence[PromptedProblem]
    initial_values: InitialValues | None
    ledger: Ledger
    settings: dict[str, Any]  # the configuration as plain values
    problems: str  # where they come from and what was left out, in a line

    def count_judging(self) -> None:
        """Take the judge's counters into the ledger."""
        spent, counts = [self.judge.stats, *self.rollouts.judging_stats], self.ledger.counts
        if self.initial_values:
            spent.append(self.initial_values.reference.judging_stats)
        counts.judged_programs = sum(stats.programs_judged for stats in spent)
        counts.judged_tests = sum(stats.tests_run for stats in spent)
        counts.infra_errors = sum(stats.infra_errors for stats in spent)
        self.ledger.judge_cpu_s = sum(stats.cpu_s for stats in spent)
        self.ledger.charge_recalled("judge", self.judge.stats.recalled_s)


@contextmanager
def build(
    config: RunConfig, records: Records, runtime: Runtime = SINGLE_PROCESS
) -> Iterator[Parts]:
    """Load, connect and record; the sandbox closes with the block."""
    algorithm = load_function(config.algo.core, "algo.core")(config.algo, config.task.reward.high)
    records.describe(
        memory=check_memory(config, algorithm.needs, runtime.size if runtime.sharded else 0)
    )
    task = _open_task(config)
    base, tokenizer = loading.load(config.model)
    weights = loading.fingerprint(base.model)
    parameters = sum(parameter.numel() for parameter in base.model.parameters())
    with runtime.environments(config) as environments:
        ledger = Ledger()
        work = build_worker_parts(config, base, tokenizer, environments, runtime, ledger)
        learner, environments = work.learner, work.environments
        judge, eval_judge = environments.make(), environments.make()
        train = _prompts(task.train, "train", task, tokenizer, config)
        split = getattr(task, config.eval.split)
        eval_prompts = _prompts(split, config.eval.split, task, tokenizer, config)
        records.describe(
            data_hash=task.data_hash,
            judge_version=judge.version,
            sandbox={"name": environments.name, "strength": environments.strength},
            weights=weights,
            parameters=parameters,
            train_problems=len(train),
            eval_problems=len(eval_prompts),
            task={
                "rows_read": task.rows_read,
                "left_out": dict(task.left_out),
                "decontaminated": task.decontaminated,
            },
        )
        records.problems(_asked(eval_prompts, task))
        engine = work.engine
        records.describe(engine=engine.description)
        rollouts = open_batches(
            config,
            task,
            train,
            engine,
            judge,
            environments,
            tokenizer,
            ledger,
            records.folder.name,
            algorithm.needs,
            lambda: learner.policy.version,
        )
        yield Parts(
            learner=learner,
            weight_sync=work.weight_sync,
            eval_engine=work.eval_engine,
            tokenizer=tokenizer,
            environments=environments,
            rollouts=rollouts,
            prefetch=runtime.prefetcher(work.weight_sync, rollouts, config.steps),
            sample_log=SampleLog(records.folder, judge.version)
            if config.train.keep_samples
            else None,
            reward_shaping=RewardShaping(config.task.reward, config.seed),
            logprob_check=LogprobCheck(config, engine, learner, train),
            judge=judge,
            eval_judge=eval_judge,
            eval_prompts=eval_prompts,
            initial_values=_initial_values(config, work, weights, tokenizer, ledger),
            ledger=ledger,
            settings=asdict(config),
            problems=_in_a_line(task, len(train), len(eval_prompts)),
        )


def _open_task(config: RunConfig) -> Task:
    try:
        return open_task(config.task)
    except (ValueError, OSError) as error:
        raise UserError(str(error)) from error


def _in_a_line(task: Task, train: int, evaluated: int) -> str:
    text = f"{train} to train on, {evaluated} to evaluate"
    if task.rows_read:
        text += f", of {task.rows_read} rows"
    if task.left_out:
        text += f"; left out: {_reasons(task)}"
    return text


def _reasons(task: Task) -> str:
    return ", ".join(f"{why} {count}" for why, count in task.left_out.most_common())


def _prompts(
    problems: Sequence[Problem], split: str, task: Task, tokenizer: object, config: RunConfig
) -> Prompts:
    """The split's prompts; an empty split is an error, dropped problems are said."""
    kept, dropped = encode_prompts(problems, task, tokenizer, config.task, config.model.chat_args)
    if dropped:
        task.left_out[f"prompt over task.max_prompt_tokens={config.task.max_prompt_tokens}"] += (
            dropped
        )
    if not kept and (config.steps or split != "train"):
        raise UserError(_empty(split, kept, task, config))
    return kept


def _asked(prompts: Sequence[PromptedProblem], task: Task) -> Iterator[dict[str, str]]:
    """Each problem's name and what the model is asked, which is its statement with its samples."""
    for prompt in prompts:
        problem = prompt.problem
        yield {"problem": problem.name, "prompt": task.prompt(problem)}


def _empty(split: str, prompts: Prompts, task: Task, config: RunConfig) -> str:
    """Why a split has nothing to ask for, and which key would give it something."""
    told = f"task={config.task.name}: the {split} split is empty"
    removed = task.left_out["stands in the test split too"]
    if len(prompts.problems):
        limit = config.task.max_prompt_tokens
        told += f": all of its prompts are over task.max_prompt_tokens={limit}, the shortest with "
        told += f"{prompts.shortest} tokens; raise it"
    elif removed and split != "test":
        told += f": {removed} problems stand in the test split too; task.decontaminate=false keeps "
        told += "them, but a test is worth less then"
    return told + (f"; left out: {_reasons(task)}" if task.left_out else "")


def _initial_values(
    config: RunConfig, work: WorkerParts, weights: str, tokenizer: object, ledger: Ledger
) -> InitialValues | None:
    """`weights`: the reference's fingerprint."""
    needs = work.learner.algorithm.needs
    if work.reference_engine is None:
        return None
    # A judge of its own: what the cache on disk saves it must not show in the run's counters.
    reference = ReferenceRewards(
        folder=Path(config.output_dir) / ".cache" / "reference_rewards",
        engine=work.reference_engine,
        weights=weights,
        judge=work.environments.make(),
        tokenizer=tokenizer,
        reward=config.task.reward,
        sampling=Sampling(config.task.max_response_tokens, config.train.temperature),
        samples=config.algo.q0_samples,
        seed=config.seed,
        ledger=ledger,
        overlap=overlaps(config),
    )
    return InitialValues(reference, needs.initial_value_beta, needs.initial_value == "online")
