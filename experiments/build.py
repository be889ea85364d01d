"""Build the parts of a run from its configuration, as far as the algorithm needs them."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from envs.environment import Environment
from envs.import_by_name import load_function
from envs.problem import Problem
from envs.tasks import open_task
from envs.tasks.task import Task
from experiments.config.schema import RunConfig
from experiments.engine_check import LogprobCheck
from experiments.engines.base import Engine, Sampling
from experiments.engines.weight_sync import WeightSync
from experiments.errors import UserError
from experiments.learner.learner import Learner
from experiments.learner.memory import check_memory
from experiments.policy import loading
from experiments.policy.model_checks import check_lengths, check_tokens
from experiments.policy.model_flops import model_flops
from experiments.replay.sample_log import SampleLog
from experiments.rollout.batch_sources import BatchSource, observations_hash, open_batches
from experiments.rollout.conversations import Dialogue, dialogue_of
from experiments.rollout.environments import Environments
from experiments.rollout.generate import overlaps
from experiments.rollout.initial_values import InitialValues, ReferenceRewards
from experiments.rollout.problem_facts import (
    empty_split,
    problem_facts,
    problem_line,
)
from experiments.rollout.prompts import Prompts, encode_prompts
from experiments.rollout.rewards import RewardShaping
from experiments.rollout.rollouts import response_limit
from experiments.run_dir.activity import Activity
from experiments.run_dir.ledger import Ledger
from experiments.run_dir.records import Records
from experiments.runtime.base import SINGLE_PROCESS, Runtime
from experiments.runtime.worker import WorkerParts, build_worker_parts
from experiments.sample import PromptedProblem

if TYPE_CHECKING:
    from transformers import PreTrainedConfig, PreTrainedTokenizerBase


@dataclass
class Parts:
    """Everything that the loop works with."""

    learner: Learner
    weight_sync: WeightSync  # from the learner to the rollout policy's engine
    eval_engine: Engine  # of the trained policy
    tokenizer: PreTrainedTokenizerBase
    environments: Environments
    rollouts: BatchSource
    prefetch: Callable[[int], None]  # starts a batch, and later ones where their weights exist
    sample_log: SampleLog | None
    reward_shaping: RewardShaping  # of the rewards that a batch is learned from
    logprob_check: LogprobCheck  # of the rollout policy's engine against the learner
    judge: Environment  # of training responses; the budget counts its work
    eval_judge: Environment
    eval_prompts: Sequence[PromptedProblem]
    eval_dialogue: Dialogue | None  # of conversations in evaluations; None: one answer each
    initial_values: InitialValues | None
    ledger: Ledger
    settings: dict[str, Any]  # the configuration as plain values
    problems: str  # their number and the omitted rows, in a line

    def count_judging(self) -> None:
        """Copy the judges' counters to the ledger."""
        all_stats = [self.judge.stats, *self.rollouts.judging_stats]
        if self.initial_values:
            all_stats.append(self.initial_values.reference.judging_stats)
        counts = self.ledger.counts
        counts.judged_programs = sum(stats.programs_judged for stats in all_stats)
        counts.judged_tests = sum(stats.tests_run for stats in all_stats)
        counts.infra_errors = sum(stats.infra_errors for stats in all_stats)
        counts.checker_faults = sum(stats.checker_faults for stats in all_stats)
        self.ledger.judge_cpu_s = sum(stats.cpu_s for stats in all_stats)
        self.ledger.charge_recalled("judge", self.judge.stats.recalled_s)


@contextmanager
def build(
    config: RunConfig,
    records: Records,
    runtime: Runtime = SINGLE_PROCESS,
    activity: Activity | None = None,
) -> Iterator[Parts]:
    """Build the parts and record their facts; the sandbox closes with the block.

    `activity` shows what it does, and later the phases of the run. Raises UserError.
    """
    activity = activity or Activity()
    activity.begin("opening the task")
    algorithm = load_function(config.algo.core, "algo.core")(config.algo, config.task.reward.high)
    model_config = loading.read_config(config.model, activity)
    check_lengths(model_config, config)
    ranks = runtime.size if runtime.sharded else 0
    records.describe(memory=check_memory(config, algorithm.needs, ranks))
    task = _open_task(config)
    activity.begin("encoding the prompts")
    tokenizer = loading.load_tokenizer(config.model)
    train_prompts, eval_prompts = _all_prompts(task, tokenizer, model_config, config)
    activity.begin("loading the model")
    base = loading.load_policy(config.model)
    weights = loading.fingerprint(base.model)
    fingerprint = loading.policy_fingerprint(base, tokenizer, weights)
    parameters = sum(parameter.numel() for parameter in base.model.parameters())
    records.describe(weights=weights, policy=fingerprint, parameters=parameters)
    activity.begin("opening the sandbox and the engine")
    with runtime.environments(config) as local_environments:
        ledger = Ledger(activity=activity, model=model_flops(base.model))
        worker = build_worker_parts(config, base, tokenizer, local_environments, runtime, ledger)
        parts = _assemble(
            config=config,
            records=records,
            runtime=runtime,
            task=task,
            train_prompts=train_prompts,
            eval_prompts=eval_prompts,
            worker=worker,
            tokenizer=tokenizer,
            fingerprint=fingerprint,
            ledger=ledger,
        )
        activity.begin("")
        yield parts


def _assemble(
    *,
    config: RunConfig,
    records: Records,
    runtime: Runtime,
    task: Task,
    train_prompts: Prompts,
    eval_prompts: Prompts,
    worker: WorkerParts,
    tokenizer: PreTrainedTokenizerBase,
    fingerprint: str,
    ledger: Ledger,
) -> Parts:
    """Join learner, engine, task and judges. `fingerprint`: of the reference policy."""
    learner, environments = worker.learner, worker.environments
    assert environments is not None  # rank 0 judges
    judge, eval_judge = environments.make(), environments.make()
    engines = runtime.size if runtime.local_engines else config.runtime.engines
    dialogue = dialogue_of(config, tokenizer, config.task.turns, engines)
    eval_dialogue = dialogue_of(config, tokenizer, config.eval_turns, engines)
    records.describe(
        prompts_hash=_prompts_hash(train_prompts, eval_prompts),
        observations_hash=observations_hash(dialogue or eval_dialogue),
    )
    facts = _describe(config, records, task, train_prompts, eval_prompts, environments, judge)
    records.describe(engine=worker.engine.description)
    rollouts = open_batches(
        config=config,
        task=task,
        prompts=train_prompts,
        engine=worker.engine,
        judge=judge,
        environments=environments,
        tokenizer=tokenizer,
        ledger=ledger,
        run=records.folder.name,
        needs=learner.algorithm.needs,
        replay_until=learner.algorithm.replay_until,
        version=lambda: learner.policy.version,
        dialogue=dialogue,
    )
    log_samples = config.train.keep_samples
    return Parts(
        learner=learner,
        weight_sync=worker.weight_sync,
        eval_engine=worker.eval_engine,
        tokenizer=tokenizer,
        environments=environments,
        rollouts=rollouts,
        prefetch=runtime.prefetcher(worker.weight_sync, rollouts, config.steps),
        sample_log=SampleLog(records.folder, judge.version) if log_samples else None,
        reward_shaping=RewardShaping(config.task.reward, config.seed),
        logprob_check=LogprobCheck(config, worker.engine, learner, train_prompts),
        judge=judge,
        eval_judge=eval_judge,
        eval_prompts=eval_prompts,
        eval_dialogue=eval_dialogue,
        initial_values=_initial_values(
            config, worker, environments, fingerprint, tokenizer, ledger, dialogue
        ),
        ledger=ledger,
        settings=asdict(config),
        problems=problem_line(task, len(train_prompts), len(eval_prompts), facts),
    )


def _describe(
    config: RunConfig,
    records: Records,
    task: Task,
    train: Prompts,
    evaluated: Prompts,
    environments: Environments,
    judge: Environment,
) -> dict[str, Any]:
    """Record data, judge and sandbox in run.json; return the facts on the problems in use."""
    used = {"train": train.kept_problems} if config.steps else {}
    used["eval"] = evaluated.kept_problems
    facts = problem_facts(config, used, judge.version)
    records.describe(
        data_hash=task.data_hash,
        judge_version=judge.version,
        sandbox={"name": environments.name, "strength": environments.strength},
        train_problems=len(train),
        eval_problems=len(evaluated),
        task={
            "rows_read": task.rows_read,
            "left_out": dict(task.left_out),
            "first_left_out": task.first_left_out,
            "decontaminated": task.decontaminated,
        },
        **facts,
    )
    records.problems(_statements(evaluated, task))
    return facts


def _open_task(config: RunConfig) -> Task:
    try:
        return open_task(config.task)
    except (ValueError, OSError) as error:
        raise UserError(str(error)) from error


def _all_prompts(
    task: Task,
    tokenizer: PreTrainedTokenizerBase,
    model_config: PreTrainedConfig,
    config: RunConfig,
) -> tuple[Prompts, Prompts]:
    """Encode the prompts for training and for evaluations. Raises UserError."""
    train = _prompts(task.train, "train", task, tokenizer, config, config.steps > 0)
    eval_split = getattr(task, config.eval.split)
    evaluated = _prompts(eval_split, config.eval.split, task, tokenizer, config, True)
    largest = max(int(prompts.ids.max(initial=0)) for prompts in (train, evaluated))
    check_tokens(tokenizer, model_config, config.model.path, largest)
    return train, evaluated


def _prompts(
    problems: Sequence[Problem],
    split: str,
    task: Task,
    tokenizer: PreTrainedTokenizerBase,
    config: RunConfig,
    needed: bool,
) -> Prompts:
    """Encode a split's prompts and count those over the limit.

    Raises UserError if some are `needed` and none is left.
    """
    prompts, dropped = encode_prompts(
        problems, task, tokenizer, config.task, config.model.chat_args
    )
    if dropped:
        limit = config.task.max_prompt_tokens
        task.left_out[f"prompt over task.max_prompt_tokens={limit}"] += dropped
    if needed and not prompts:
        raise UserError(empty_split(split, prompts, task, config))
    return prompts


def _prompts_hash(*splits: Prompts) -> str:
    """Return 16 hex digits over the tokens of all prompts."""
    text = " ".join(prompts.digest for prompts in splits)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _statements(prompts: Sequence[PromptedProblem], task: Task) -> Iterator[dict[str, str]]:
    """Yield each problem's name and its prompt: the statement with its samples."""
    for prompt in prompts:
        yield {"problem": prompt.problem.name, "prompt": task.prompt(prompt.problem)}


def _initial_values(
    config: RunConfig,
    worker: WorkerParts,
    environments: Environments,
    fingerprint: str,
    tokenizer: PreTrainedTokenizerBase,
    ledger: Ledger,
    dialogue: Dialogue | None,
) -> InitialValues | None:
    """`fingerprint`: of the reference policy."""
    needs = worker.learner.algorithm.needs
    if worker.reference_engine is None:
        return None
    reference = ReferenceRewards(
        folder=Path(config.output_dir) / ".cache" / "reference_rewards",
        engine=worker.reference_engine,
        policy=fingerprint,
        # A judge of its own: the run's counters must not show what the cache on disk saves.
        judge=environments.make(),
        tokenizer=tokenizer,
        reward=config.task.reward,
        sampling=Sampling(response_limit(config), config.train.temperature),
        samples=config.algo.q0_samples,
        seed=config.seed,
        ledger=ledger,
        overlap=overlaps(config),
        dialogue=dialogue,
    )
    beta = worker.learner.algorithm.initial_value_beta
    return InitialValues(reference, beta, needs.initial_value == "online")
