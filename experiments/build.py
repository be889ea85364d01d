"""Build the parts of a run from its configuration, as far as the algorithm needs them."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import torch
from transformers import PreTrainedTokenizerBase

from envs.command_line import load_function
from envs.problem import Environment
from envs.tasks import open_task
from envs.tasks.task import Task
from experiments.config.checks import accepts_missing_logprobs
from experiments.config.schema import RunConfig
from experiments.engine_check import LogprobCheck
from experiments.engines.base import Engine, Sampling
from experiments.engines.weight_sync import WeightSync
from experiments.errors import UserError
from experiments.evaluation import Evaluation
from experiments.learner.costs import check_memory, model_flops
from experiments.learner.learner import Learner
from experiments.policy import loading
from experiments.policy.loading import check_lengths, check_tokens
from experiments.replay.buffer import ReplayBuffer, check_source
from experiments.replay.programs import JudgementCache, JudgingCosts, OfflinePrograms, ProgramFile
from experiments.replay.sample_log import EarlierRun, FrozenBatches, check_same_settings
from experiments.rollout.conversations import dialogue_of
from experiments.rollout.generate import Responder, overlaps
from experiments.rollout.initial_values import InitialValues, ReferenceRewards
from experiments.rollout.prefixes import PrefixValues
from experiments.rollout.prompts import Prompts, problem_facts, problem_line, prompts_of
from experiments.rollout.rewards import RewardShaping
from experiments.rollout.rollouts import BatchSource, Rollouts
from experiments.run_dir.ledger import Ledger
from experiments.run_dir.progress import Activity
from experiments.run_dir.records import Records
from experiments.runtime.base import SINGLE_PROCESS, Runtime, build_worker_parts
from experiments.runtime.judges import Environments

# for run.json
FACTS_OF_TASK = ("rows_read", "left_out", "first_left_out", "changed", "decontaminated")


@runtime_checkable
class Stateful(Protocol):
    """A part with state to resume from."""

    def state_dict(self) -> dict[str, Any]: ...

    def load_state_dict(self, state: dict[str, Any]) -> None: ...


@dataclass
class Parts:
    """Everything that the loop works with."""

    learner: Learner
    weight_sync: WeightSync  # from the learner to the rollout policy's engine
    eval_engine: Engine  # of the trained policy
    tokenizer: PreTrainedTokenizerBase
    rollouts: BatchSource
    prefetch: Callable[[int], None]  # starts a batch, and later ones where their weights exist
    reward_shaping: RewardShaping  # of the rewards that a batch is learned from
    logprob_check: LogprobCheck  # of the rollout policy's engine against the learner
    judge: Environment  # of training responses; the budget counts its work
    evaluation: Evaluation
    initial_values: InitialValues | None
    prefix_values: PrefixValues | None
    ledger: Ledger
    problems: str  # their number and the omitted rows, in a line
    sandbox: str  # its name and strength, in a line

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

    def states(self) -> dict[str, Any]:
        """Copy all state but tensors and the replay buffer's rows; cheap enough for every step."""
        random: dict[str, Any] = {"cpu": torch.get_rng_state()}  # a custom algorithm may draw
        if torch.cuda.is_initialized():
            random["cuda"] = torch.cuda.get_rng_state_all()
        stats = {name: asdict(judge.stats) for name, judge in self._judges().items()}
        parts = {name: part.state_dict() for name, part in self._stateful().items()}
        return {"parts": parts, "stats": stats, "random": random}

    def tables(self) -> dict[str, Any]:
        """Return the replay buffer's Arrow table, uncopied: it never changes in place."""
        replay = self.rollouts.replay
        return {} if replay is None else {"replay": replay.table}

    def tensors(self) -> dict[str, Any]:
        """Return the tensors of learner and weight sync, uncopied: only an update changes them."""
        return {"learner": self.learner.state_dict(), "weight_sync": self.weight_sync.state_dict()}

    def restore(self, checkpoint: Path, states: dict[str, Any], tables: dict[str, Any]) -> None:
        """Restore what these methods returned; each rank reads its tensors from the checkpoint."""
        self.learner.load_from(checkpoint)
        self.weight_sync.load_from(checkpoint)
        if (replay := self.rollouts.replay) is not None:
            replay.load_rows(tables["replay"])
        for name, part in self._stateful().items():
            part.load_state_dict(states["parts"][name])
        for name, judge in self._judges().items():
            vars(judge.stats).update(states["stats"][name])
        torch.set_rng_state(states["random"]["cpu"])
        if "cuda" in states["random"] and torch.cuda.is_available():
            torch.cuda.set_rng_state_all(states["random"]["cuda"])

    def _judges(self) -> dict[str, Environment]:
        return {"judge": self.judge, "eval_judge": self.evaluation.responder.judge}

    def _stateful(self) -> dict[str, Stateful]:
        parts = {
            "ledger": self.ledger,
            "rollouts": self.rollouts,
            "offline": self.rollouts.offline,
            "replay": self.rollouts.replay,
            "logprob_check": self.logprob_check,
            "reward_shaping": self.reward_shaping,
            "initial_values": self.initial_values,
            **self._judges(),
        }
        return {name: part for name, part in parts.items() if isinstance(part, Stateful)}


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
    model_config = loading.read_config(config.model)
    check_lengths(model_config, config)
    ranks = runtime.size if runtime.sharded else 0
    records.describe(memory=check_memory(config, algorithm.needs, ranks))
    try:
        task = open_task(config.task)
    except (ValueError, OSError) as error:
        raise UserError(str(error)) from error
    activity.begin("encoding the prompts")
    tokenizer = loading.load_tokenizer(config.model)
    train_prompts = prompts_of("train", task, tokenizer, config, config.steps > 0)
    wanted = config.train.prompts if config.steps else 0
    eval_prompts = prompts_of(config.eval.split, task, tokenizer, config, True)
    largest = max(int(prompts.ids.max(initial=0)) for prompts in (train_prompts, eval_prompts))
    check_tokens(tokenizer, model_config, config.model.path, largest)
    activity.begin("loading the model")
    base = loading.load_policy(config.model)
    weights = loading.fingerprint(base.model)
    fingerprint = loading.policy_fingerprint(base, tokenizer, weights)
    parameters = sum(parameter.numel() for parameter in base.model.parameters())
    records.describe(weights=weights, policy=fingerprint, parameters=parameters)
    activity.begin("opening the sandbox and the engine")
    with runtime.environments(config) as own_environments:
        ledger = Ledger(activity=activity, model=model_flops(base.model))
        worker = build_worker_parts(config, base, tokenizer, own_environments, runtime, ledger)
        learner, environments, sync = worker.learner, worker.environments, worker.weight_sync
        assert environments is not None  # rank 0 judges
        engines = runtime.size if runtime.local_engines else config.runtime.engines
        dialogue = dialogue_of(config, tokenizer, config.task.turns, engines)
        eval_dialogue = dialogue_of(config, tokenizer, config.eval_turns, engines)
        talk, digests = dialogue or eval_dialogue, f"{train_prompts.digest} {eval_prompts.digest}"
        judge, limit = environments.make(), config.longest_response(1)
        used = {"train": train_prompts.kept_problems} if config.steps else {}
        used["eval"] = eval_prompts.kept_problems
        facts = problem_facts(config, used, judge.version)
        records.describe(
            prompts_hash=hashlib.sha256(digests.encode()).hexdigest()[:16],
            observations_hash=talk and talk.digest,
            engine=worker.engine.description,
            data_hash=task.data_hash,
            judge_version=judge.version,
            sandbox={"name": environments.name, "strength": environments.strength},
            train_problems=len(train_prompts),
            eval_problems=len(eval_prompts),
            task={fact: getattr(task, fact) for fact in FACTS_OF_TASK},
            **facts,
        )
        records.problems(
            {"problem": p.problem.name, "prompt": task.prompt(p.problem)} for p in eval_prompts
        )
        given = (worker.engine, judge, tokenizer, config.task.reward, overlaps(config))
        responder = Responder(*given, ledger, activity, dialogue)
        untimed = replace(responder, ledger=None)  # phases of evaluations and of the reference
        sampling = Sampling(limit, config.train.temperature)
        cache = Path(config.output_dir) / ".cache"
        initial_values = None
        if worker.reference_engine is not None:
            # A judge of its own: the run's counters must not show what the cache on disk saves.
            own = replace(untimed, engine=worker.reference_engine, judge=environments.make())
            folder, samples = cache / "reference_rewards", config.algo.q0_samples
            reference = ReferenceRewards(
                folder, own, fingerprint, sampling, samples, config.seed, ledger
            )
            initial_values = InitialValues(reference, learner.algorithm)
        model, info = config.model, records.info
        facts_of_base = [info[fact] for fact in ("policy", "versions", "hardware")]
        facts_of_base += [model.device, model.dtype, model.threads, config.engine.batch_size]
        facts_of_base += [model.head_dtype, config.engine.static_cache]
        evaluating = replace(untimed, engine=worker.eval_engine, dialogue=eval_dialogue)
        evaluation = Evaluation(
            prompts=eval_prompts,
            responder=replace(evaluating, judge=environments.make()),
            sampling=Sampling(limit, config.eval.temperature, config.eval.top_p),
            samples=config.eval.samples,
            seed=config.seed,
            ledger=ledger,
            base_judge=environments.make,
            cache=cache / "base",
            facts=facts_of_base,
        )
        rollouts = _rollouts(
            config, task, train_prompts, responder, sampling, environments, learner, records
        )
        prefix_values, prefetch = None, runtime.prefetcher(sync, rollouts, config.steps)
        steps = learner.algorithm.needs.step_values
        if steps is not None and not steps.branches:
            kept = records.folder if config.train.keep_prefix_values else None
            prefix_values = PrefixValues(responder, sampling, steps, config.seed, kept)
            # The run's judge has a batch's continuations before the next batch's responses.
            prefetch = lambda step: None  # noqa: E731
        activity.begin("")
        yield Parts(
            learner=learner,
            weight_sync=sync,
            eval_engine=worker.eval_engine,
            tokenizer=tokenizer,
            rollouts=rollouts,
            prefetch=prefetch,
            reward_shaping=RewardShaping(config.task.reward, config.seed),
            logprob_check=LogprobCheck(config, worker.engine, learner, train_prompts),
            judge=judge,
            evaluation=evaluation,
            initial_values=initial_values,
            prefix_values=prefix_values,
            ledger=ledger,
            problems=problem_line(task, len(train_prompts), len(eval_prompts), facts, wanted),
            sandbox=f"{environments.name} ({environments.strength})",
        )


def _rollouts(
    config: RunConfig,
    task: Task,
    prompts: Prompts,
    responder: Responder,
    sampling: Sampling,
    environments: Environments,
    learner: Learner,
    records: Records,
) -> BatchSource:
    """Open a run's batch source. Raises UserError if a stored source does not fit."""
    ledger, judge, tokenizer = learner.ledger, responder.judge, responder.tokenizer
    dialogue = responder.dialogue
    runs = [Path(run) for run in config.replay.from_runs]
    for run in runs:
        check_same_settings(run, config, dialogue.digest if dialogue else None)
    missing_logprobs = accepts_missing_logprobs(config, learner.algorithm.needs)
    if config.replay.frozen:
        costs = JudgingCosts(ledger, "replayed_programs")
        return FrozenBatches(config, prompts, judge.version, costs, missing_logprobs)
    offline = replay = None
    own_programs = config.train.offline_share or config.train.reset_share
    if own_programs or config.replay.files:
        # A judge of its own: hits of the cache on disk are not in the run's counters.
        folder = Path(config.output_dir) / ".cache" / "offline"
        cache = JudgementCache(folder, environments.make(), ledger)
    reward = config.task.reward
    stored: dict[str, Any] = {"tokenizer": tokenizer, "reward": reward}
    stored |= {"max_tokens": sampling.max_tokens, "format_response": task.response}
    if own_programs:
        count, costs = config.train.offline_per_problem, JudgingCosts(ledger, "offline_programs")
        offline = OfflinePrograms(cache, per_problem=count, costs=costs, **stored)
    if config.train.replay_share:
        replayed: list[EarlierRun | ProgramFile] = [
            EarlierRun(run, judge.version, reward) for run in runs
        ]
        needs_logps = not missing_logprobs
        replayed += [
            ProgramFile(Path(file), judgement_cache=cache, needs_logps=needs_logps, **stored)
            for file in config.replay.files
        ]
        for source in replayed:
            check_source(source, prompts)
        version, costs = lambda: learner.policy.version, JudgingCosts(ledger, "replayed_programs")
        replay = ReplayBuffer(config.replay, reward, version, costs, replayed)
    name, until = records.folder.name, learner.algorithm.replay_until
    steps = learner.algorithm.needs.step_values
    tree = steps if steps is not None and steps.branches else None
    given = (config, prompts, responder, name, sampling, ledger)
    return Rollouts(*given, offline, replay, until, tree)
