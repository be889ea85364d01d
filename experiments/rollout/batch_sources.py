"""Where a run's batches come from: rollouts, with offline and replayed samples, or a sample log."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from omegaconf import OmegaConf

from algorithms.base import Needs
from envs.environment import Environment, JudgeStats
from envs.tasks.task import Task
from experiments.config.schema import RunConfig
from experiments.config.validation import accepts_missing_logprobs
from experiments.engines.base import Engine
from experiments.errors import UserError
from experiments.replay.buffer import ReplayBuffer
from experiments.replay.sources import (
    EarlierRun,
    FrozenBatches,
    JudgementCache,
    JudgingCosts,
    OfflinePrograms,
    ProgramFile,
)
from experiments.rollout.conversations import Dialogue
from experiments.rollout.environments import Environments
from experiments.rollout.rollouts import Rollouts, response_limit
from experiments.run_dir.ledger import Ledger
from experiments.sample import PromptedProblem, Sample

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase


class BatchSource(Protocol):
    """Judged samples for each optimiser batch: `Rollouts` or `FrozenBatches`."""

    @property
    def offline(self) -> OfflinePrograms | None: ...

    @property
    def replay(self) -> ReplayBuffer | None: ...

    def collect(self, step: int) -> list[Sample]:
        """Return the samples of batch `step`, each prompt's group adjacent."""
        ...

    def upcoming_prompts(self, batches: int) -> list[PromptedProblem]:
        """Return the prompts of the next batches."""
        ...

    @property
    def judging_stats(self) -> list[JudgeStats]:
        """The cost of judging samples that the run did not generate."""
        ...

    @property
    def description(self) -> dict[str, Any]:
        """Counts of used and skipped samples of that kind, for run.json."""
        ...

    def metrics(self) -> dict[str, float]:
        """Return the replay buffer's metrics."""
        ...

    def state_dict(self) -> dict[str, Any]: ...

    def load_state_dict(self, state: dict[str, Any]) -> None: ...


def open_batches(
    config: RunConfig,
    *,
    task: Task,
    prompts: Sequence[PromptedProblem],
    engine: Engine,
    judge: Environment,
    environments: Environments,
    tokenizer: PreTrainedTokenizerBase,
    ledger: Ledger,
    run: str,
    needs: Needs,
    replay_until: int | None,
    version: Callable[[], int],
    dialogue: Dialogue | None = None,
) -> BatchSource:
    """Make a run's batch source. Raises UserError if a stored source does not fit.

    `run`: the run folder's name; `version`: optimiser steps of the weights to be trained.
    """
    for earlier_run in config.replay.from_runs:
        _check_same_settings(Path(earlier_run), config, observations_hash(dialogue))
    missing_logprobs = accepts_missing_logprobs(config, needs)
    if config.replay.frozen:
        costs = JudgingCosts(ledger)
        return FrozenBatches(config, prompts, judge.version, costs, missing_logprobs)
    offline = replay = None
    if config.train.offline_share:
        offline = OfflinePrograms(
            folder=_cache_folder(config),
            tokenizer=tokenizer,
            judge=environments.make(),  # its own: disk-cache hits are not in its counters
            reward=config.task.reward,
            max_tokens=response_limit(config),
            per_problem=config.train.offline_per_problem,
            format_response=task.response,
            ledger=ledger,
        )
    if config.train.replay_share:
        replay = ReplayBuffer(
            config.replay,
            config.task.reward,
            version,
            JudgingCosts(ledger),
            _earlier_sources(
                config, task, prompts, environments.make(), tokenizer, ledger, missing_logprobs
            ),
        )
    return Rollouts(
        config,
        prompts,
        engine,
        judge,
        tokenizer,
        offline=offline,
        ledger=ledger,
        run=run,
        replay=replay,
        replay_until=replay_until,
        dialogue=dialogue,
    )


def _earlier_sources(
    config: RunConfig,
    task: Task,
    prompts: Sequence[PromptedProblem],
    judge: Environment,
    tokenizer: PreTrainedTokenizerBase,
    ledger: Ledger,
    missing_logprobs: bool,
) -> list[EarlierRun | ProgramFile]:
    """Open the earlier runs and files of programs that are replayed. Raises UserError."""
    sources: list[EarlierRun | ProgramFile] = []
    for folder in config.replay.from_runs:
        sources.append(EarlierRun(Path(folder), judge.version, config.task.reward))
    for file in config.replay.files:
        sources.append(
            ProgramFile(
                Path(file),
                judgement_cache=JudgementCache(_cache_folder(config), judge, ledger),
                tokenizer=tokenizer,
                reward=config.task.reward,
                max_tokens=response_limit(config),
                format_response=task.response,
                needs_logps=not missing_logprobs,
            )
        )
    for source in sources:
        check_source(source, prompts)
    return sources


def observations_hash(dialogue: Dialogue | None) -> str | None:
    """Return 16 hex digits over the texts of observations; None without conversations."""
    if dialogue is None:
        return None
    text = f"{dialogue.feedback.digest} {dialogue.encoder.digest}"
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _check_same_settings(run: Path, config: RunConfig, observations: str | None) -> None:
    """Raise UserError if the earlier run sampled with other settings.

    Log-probs depend on the sampling temperature, a group's baseline on the whole group, and what an
    answer is worth on what follows it in a conversation. `observations`: their hash here.
    """
    for file in ("config.yaml", "run.json") if observations else ("config.yaml",):
        if not (run / file).is_file():
            raise UserError(
                f"replay.from_runs=[{run}]: not a whole run folder: it has samples but no {file}; "
                "give the whole folder"
            )
    theirs = OmegaConf.load(run / "config.yaml")
    keys = ["train.temperature", *["train.group_size"] * config.replay.frozen, "task.turns"]
    if observations:
        keys += ["task.feedback", "task.max_observation_tokens"]
    for section, _, key in (each.partition(".") for each in keys):
        ours = getattr(config, section)
        default = getattr(type(ours)(), key)  # of a run of before the key
        if (value := getattr(theirs, section).get(key, default)) != getattr(ours, key):
            raise UserError(
                f"replay.from_runs=[{run}]: its {section}.{key} was {value}, but "
                f"{section}.{key} is {getattr(ours, key)} here; use the same value"
            )
    if observations is None:
        return
    recorded = json.loads((run / "run.json").read_text()).get("observations_hash")
    if recorded != observations:
        raise UserError(
            f"replay.from_runs=[{run}]: its observations have other texts (observations_hash "
            f"{recorded}, here {observations}); use its task.feedback_prompt "
            f"({theirs.task.get('feedback_prompt')}), unchanged, and its model's chat template"
        )


def check_source(source: EarlierRun | ProgramFile, prompts: Sequence[PromptedProblem]) -> None:
    """Count samples of problems outside this run's train split.

    Raises UserError if no sample is usable, judged by the first problem that both have.
    """
    problems = source.problems
    outside = problems.keys() - {prompt.problem.name for prompt in prompts}
    if outside:
        count = sum(problems[name] for name in outside)
        source.left_out["of problems that this run's train split has not"] += count
    shared = next((prompt for prompt in prompts if prompt.problem.name in problems), None)
    if shared is None:
        raise UserError(f"{source}: none of its problems is in this run's train split")
    if isinstance(source, EarlierRun) and (reason := source.rejection_reason(shared)):
        raise UserError(f"{source}: {shared.problem.name}: {reason}")


def _cache_folder(config: RunConfig) -> Path:
    return Path(config.output_dir) / ".cache" / "offline"
