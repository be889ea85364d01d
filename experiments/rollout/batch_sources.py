"""Where a run's batches come from: a policy, with others' programs beside its own; or a record."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from omegaconf import OmegaConf

from algorithms.base import Needs
from envs.environment import Environment
from envs.tasks.task import Task
from experiments.config.schema import RunConfig
from experiments.config.validation import accepts_missing_logprobs
from experiments.engines.base import Engine
from experiments.errors import UserError
from experiments.replay.buffer import ReplayBuffer
from experiments.replay.earlier_runs import EarlierRun
from experiments.replay.frozen_batches import FrozenBatches
from experiments.replay.judgement_cache import JudgementCache, JudgingCosts
from experiments.replay.offline_programs import OfflinePrograms
from experiments.replay.program_files import ProgramFile
from experiments.rollout.environments import Environments
from experiments.rollout.rollouts import Rollouts
from experiments.run_dir.budget import Ledger
from experiments.sample import PromptedProblem


def open_batches(
    config: RunConfig,
    task: Task,
    prompts: Sequence[PromptedProblem],
    engine: Engine,
    judge: Environment,
    environments: Environments,
    tokenizer: object,
    ledger: Ledger,
    run: str,
    needs: Needs,
    version: Callable[[], int],
) -> Rollouts | FrozenBatches:
    """`version`: optimiser steps that the weights to be trained have seen. Raises UserError."""
    same = ("temperature", "group_size") if config.replay.frozen else ("temperature",)
    for other in config.replay.from_runs:
        _check_alike(Path(other), config, same)
    if config.replay.frozen:
        unknown = accepts_missing_logprobs(config, needs)
        return FrozenBatches(config, prompts, judge.version, JudgingCosts(ledger), unknown)
    offline = _offline_pool(config, task, tokenizer, environments, ledger)
    replay = None
    if config.train.replay_share:
        sources = _sources(config, task, prompts, environments, tokenizer, ledger, needs)
        reward = config.task.reward
        replay = ReplayBuffer(config.replay, reward, version, JudgingCosts(ledger), sources)
    given = (config, prompts, engine, judge, tokenizer, offline, ledger, run)
    return Rollouts(*given, replay, needs.replay_until)


def _offline_pool(
    config: RunConfig, task: Task, tokenizer: object, environments: Environments, ledger: Ledger
) -> OfflinePrograms | None:
    if not config.train.offline_share:
        return None
    return OfflinePrograms(
        folder=_cache(config) / "offline",
        tokenizer=tokenizer,
        judge=environments.make(),  # what the disk saves is not in the counters
        reward=config.task.reward,
        max_tokens=config.task.max_response_tokens,
        per_problem=config.train.offline_per_problem,
        format_response=task.response,
        ledger=ledger,
    )


def _sources(
    config: RunConfig,
    task: Task,
    prompts: Sequence[PromptedProblem],
    environments: Environments,
    tokenizer: object,
    ledger: Ledger,
    needs: Needs,
) -> list[EarlierRun | ProgramFile]:
    reward, judge = config.task.reward, environments.make()
    judged = JudgementCache(_cache(config) / "offline", judge, ledger)
    sources: list[EarlierRun | ProgramFile] = [
        EarlierRun(Path(run), judge.version, reward) for run in config.replay.from_runs
    ]
    sources += [
        ProgramFile(
            Path(file),
            judged,
            tokenizer,
            reward,
            config.task.max_response_tokens,
            task.response,
            needs_logps=not accepts_missing_logprobs(config, needs),
        )
        for file in config.replay.files
    ]
    for source in sources:
        check_source(source, prompts)
    return sources


def _check_alike(run: Path, config: RunConfig, keys: Sequence[str]) -> None:
    """Raises UserError where what was drawn otherwise would be taken for this run's own kind.

    Log-probs are of the temperature that was drawn at, a group's baseline of the whole group.
    """
    if not (run / "config.yaml").is_file():
        raise UserError(
            f"replay.from_runs=[{run}]: no run folder, it holds samples but no config.yaml; give "
            "the whole folder"
        )
    theirs = OmegaConf.load(run / "config.yaml").train
    for key in keys:
        if theirs[key] != getattr(config.train, key):
            raise UserError(
                f"replay.from_runs=[{run}]: it was written with train.{key}={theirs[key]}, and "
                f"train.{key} is {getattr(config.train, key)} here; use theirs"
            )


def check_source(source: EarlierRun | ProgramFile, prompts: Sequence[PromptedProblem]) -> None:
    """Count the samples of problems that this run has not.

    Raises UserError where nothing in the source is of use: at the first problem that both have.
    """
    there = source.problems
    elsewhere = there.keys() - {prompt.problem.name for prompt in prompts}
    if elsewhere:
        count = sum(there[name] for name in elsewhere)
        source.left_out["of problems that this run's train split has not"] += count
    known = next((prompt for prompt in prompts if prompt.problem.name in there), None)
    if known is None:
        raise UserError(f"{source}: none of its problems is in this run's train split")
    if isinstance(source, EarlierRun) and (why := source.rejection_reason(known)):
        raise UserError(f"{source}: {known.problem.name}: {why}")


def _cache(config: RunConfig) -> Path:
    return Path(config.output_dir) / ".cache"
