"""The training loop, top to bottom.

A batch's way: problems → responses of the behaviour policy → verdicts → rewards → (offline programs
beside them) → the algorithm's targets → gradients → optimiser steps → the behaviour policy takes
new weights or waits for them (`train.sync_every`, `train.lag`). Evaluation uses the trained
weights, always.

A run can stop anywhere and go on from its last checkpoint to the same bits. After each update, and
again after what is measured of it, the loop notes where it stands (`Place`); a checkpoint holds the
last note and the weights, which nothing has changed since.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import torch

from experiments.build import Parts, build
from experiments.config.resolve_defaults import dropped, in_a_line, pick, without_its_share
from experiments.config.resume import check_same
from experiments.config.schema import RunConfig
from experiments.distributed.single_process import SINGLE_PROCESS
from experiments.errors import UserError, is_expected, is_full, one_line
from experiments.evaluation.base_evaluation import evaluate_base
from experiments.evaluation.divergence import kl_to_base
from experiments.evaluation.evaluate import evaluate, pass_at_each
from experiments.policy import loading
from experiments.policy.weights import weights_version
from experiments.replay import sample_log
from experiments.rollout.reward_shaping import sample_metrics
from experiments.run_dir import checkpoints
from experiments.run_dir.atomic_files import named
from experiments.run_dir.interrupts import catch, held
from experiments.run_dir.loggers import Loggers, open_loggers
from experiments.run_dir.progress import Display
from experiments.run_dir.records import BEST, Records
from experiments.run_dir.resume_state import BASE, ResumeState, check_base, restore, tensors_of
from experiments.runtime import Runtime


@dataclass(frozen=True)
class Outcome:
    """How a run ended."""

    folder: Path
    status: str  # finished | interrupted | failed
    error: str | None = None  # in one line
    expected: bool = True  # the line says all; else the folder's traceback.txt says more
    pass_at: dict[int, float] = field(default_factory=dict)  # k → pass@k of the last evaluation


def train(
    config: RunConfig,
    folder: Path | None = None,
    label: str = "",
    runtime: Runtime = SINGLE_PROCESS,
) -> Outcome:
    """Run it; with `folder`, go on with the run in there. Ctrl-C and errors end it cleanly: with
    its rows, its weights and its status on disk. `label`: of its lines, beside other runs'.
    `runtime`: how the run is distributed.

    Raises UserError, and OSError on a full disk, where no run folder could be made or gone on with.
    """
    catch()
    torch.set_num_threads(config.model.threads)
    torch.manual_seed(config.seed)
    device = str(loading.pick_device(config.model.device))
    given, config = config, pick(config, device)
    display = Display(config.steps, label)
    state = checkpoints.latest(folder, display.say) if folder else None
    place = ResumeState(**state["place"]) if state else ResumeState()
    if state:
        check_same(state["config"], asdict(config), f"{folder}: its checkpoint")
        _check_steps(config.steps, place.step, f"{folder}: its checkpoint")
    records = Records(config, folder, place.recorded, state["folder"] if state else None)
    sample_log.cut(records.folder, place.step)
    try:
        with build(config, records, runtime) as parts, display:
            display.say(in_a_line(config, device))
            if left_out := dropped(given, config):
                display.say(left_out)
            needs, problems = parts.learner.algorithm.needs, records.info["train_problems"]
            if missing := without_its_share(config, needs, problems):
                display.say(missing)
            display.say(f"problems: {parts.problems}")
            display.say(f"sandbox: {parts.sandbox.name} ({parts.sandbox.strength})")
            if state:
                check_base(records.info, state["base"])
                restore(parts, place.progress, named(state["folder"]), state["tables"])
                display.pass_at = state["pass_at"]
                display.say(f"going on after step {place.step} in {records.folder}")
            del state
            _loop_and_save(config, parts, records, display, place)
        records.describe(pass_at=display.pass_at)
        records.finish("finished")
    except KeyboardInterrupt:
        records.finish("interrupted")
        return Outcome(records.folder, "interrupted", pass_at=display.pass_at)
    except Exception as error:
        expected, told = is_expected(error), one_line(error)
        if not expected:
            told += f"; more in {records.keep_traceback()}"
        records.finish("failed", told)
        return Outcome(records.folder, "failed", told, expected, display.pass_at)
    return Outcome(records.folder, "finished", pass_at=display.pass_at)


def _check_steps(steps: int, behind: int, where: str) -> None:
    if steps < behind:
        raise UserError(f"{where}: steps={steps} with {behind} behind it; give {behind} or more")


def _loop_and_save(
    config: RunConfig, parts: Parts, records: Records, display: Display, place: ResumeState
) -> None:
    """However the loop ends, the weights of its last whole optimiser step are saved."""
    save = partial(_save, config.train.keep_checkpoints, parts, records, display, place)
    given = (records.folder, parts.settings, place.recorded, display.say)
    loggers, status = open_loggers(config, *given), "failed"
    try:
        _loop(config, parts, records, display, loggers, place, save)
        status = "finished"
    except BaseException as ended:
        status = "interrupted" if isinstance(ended, KeyboardInterrupt) else "failed"
        if parts.learner.batches and not is_full(ended):
            try:
                save("interrupted")
            except Exception as error:
                display.say(f"the weights could not be saved: {one_line(error)}")
        raise
    finally:
        loggers.close(status)
    if config.steps:
        save("final")


def _loop(
    config: RunConfig,
    parts: Parts,
    records: Records,
    display: Display,
    loggers: Loggers,
    place: ResumeState,
    save: Callable[[str], None],
) -> None:
    def measure(step: int, row: dict[str, Any], begin: float) -> None:
        evaluated = _measure(config, parts, records, display, loggers, step, row, begin)
        place.note(parts, step, None)
        score = display.pass_at[min(display.pass_at)]
        if evaluated and config.train.keep_best and score > place.best:
            place.best = score
            save(BEST)

    if place.row is not None:
        measure(place.step, dict(place.row), time.monotonic())
    elif not place.step:
        _evaluate(0, config, parts, records, display, loggers)
    for step in range(place.step + 1, config.steps + 1):
        begin = time.monotonic()
        row = _train_step(step, config, parts, display, place)
        measure(step, row, begin)
        every = config.train.checkpoint_every
        if every and step % every == 0 and step < config.steps:
            save(f"step-{step}")
    records.describe(**parts.rollouts.described)


def _train_step(
    step: int, config: RunConfig, parts: Parts, display: Display, place: ResumeState
) -> dict[str, Any]:
    """One batch: written, judged, learnt from; an interrupt waits for the weights → its row."""
    ledger, learner = parts.ledger, parts.learner
    before = ledger.counts.generated_tokens
    row = {"step": step, "policy_lag": parts.weight_sync.begin(step)}
    if parts.monitor.due(step, row["policy_lag"]):
        row |= _check(step, parts, display)
    if parts.initial_values:
        left = config.steps - step + 1
        parts.initial_values.reference.look_ahead(parts.rollouts.coming, left)
    parts.prefetch(step)
    samples = parts.rollouts.collect(step)
    parts.weight_sync.check(samples)
    if parts.kept:
        parts.kept.write(step, samples)
    row |= sample_metrics(samples, weights_version(learner.model)) | parts.rollouts.metrics()
    row["generated_tokens"] = ledger.counts.generated_tokens - before
    with held():
        place.progress = None
        if samples:
            with ledger.phase("train"):
                paid = parts.shaping.shaped(samples, step)
                row |= learner.update(paid, config.train.group_size, parts.initial_values)
            tokens = sum(len(sample.tokens) for sample in samples)
            ledger.counts.trained_tokens += tokens * config.train.epochs
            ledger.counts.optimiser_steps = weights_version(learner.model)
        with ledger.phase("sync"):
            ledger.counts.weight_syncs += parts.weight_sync.follow(step)
        place.note(parts, step, row)
    return row


def _measure(
    config: RunConfig,
    parts: Parts,
    records: Records,
    display: Display,
    loggers: Loggers,
    step: int,
    row: dict[str, Any],
    begin: float,
) -> bool:
    """What is known of a step once it is trained: its row, and → whether it was evaluated."""
    evaluated = step == config.steps or (config.eval.every and step % config.eval.every == 0)
    if evaluated:
        with parts.ledger.phase("sync"):
            parts.eval_engine.sync(parts.learner.model)
    row |= _kl(step, config, parts, display) if evaluated else {"eval/kl_ref": float("nan")}
    parts.read_judge()
    row |= parts.ledger.columns()
    records.step(row)
    loggers.step(row)
    display.step(step, row, time.monotonic() - begin)
    if evaluated:
        _evaluate(step, config, parts, records, display, loggers)
    return bool(evaluated)


def _evaluate(
    step: int,
    config: RunConfig,
    parts: Parts,
    records: Records,
    display: Display,
    loggers: Loggers,
) -> None:
    """Evaluate the trained weights; every sample is recorded, pass@k is shown."""
    advance, end = display.evaluating(step, len(parts.eval_prompts) * config.eval.samples)
    known = None
    with parts.ledger.phase("evaluate"):
        if step == 0:
            rows, known = evaluate_base(config, parts, records, advance)
        else:
            given = (parts.eval_prompts, parts.eval_engine, parts.eval_judge, parts.tokenizer)
            rows = evaluate(config, step, *given, advance)
            parts.ledger.charge_recalled("evaluate", parts.eval_judge.stats.recalled_s)
    end()
    records.evaluation(step, rows)
    display.evaluated(step, pass_at_each(config.eval.k, rows), known)
    loggers.evaluation(step, rows, config.eval.k, parts.ledger.columns())


def _kl(step: int, config: RunConfig, parts: Parts, display: Display) -> dict[str, float]:
    """KL of the trained weights to the base, nats a response; NaN where it is not measured.

    A stale writer is seldom or never where the learner is, so the trained weights' engine is held
    against it here instead.
    """
    if not config.eval.kl_samples:
        return {"eval/kl_ref": float("nan")}
    given = (parts.eval_prompts, parts.eval_engine, parts.learner, parts.monitor.bound)
    with parts.ledger.phase("evaluate"):
        moved, found = kl_to_base(config, step, *given)
    if not config.train.stale or not parts.monitor.every:
        return {"eval/kl_ref": moved}
    display.say(f"step {step}: {parts.monitor.verdict(found)}")
    return {"eval/kl_ref": moved} | found.metrics()


def _check(step: int, parts: Parts, display: Display) -> dict[str, float]:
    """Engine against learner, said and returned as metrics."""
    with parts.ledger.phase("sync"):
        found = parts.monitor.check(step)
    display.say(f"step {step}: {parts.monitor.verdict(found)}")
    return found.metrics()


def _save(
    keep: int, parts: Parts, records: Records, display: Display, place: ResumeState, name: str
) -> None:
    """A checkpoint; an interrupt waits until it is on disk.

    Where an update was broken off half way, weights only: the run goes on from the one before, and
    where that has this name, it stays.
    """
    if place.progress is None and checkpoints.is_whole(records.folder / "checkpoints" / name):
        return
    with held(), records.checkpoint(name, parts.learner.batches) as folder:
        if parts.eval_engine.model is not parts.learner.model:
            parts.eval_engine.sync(parts.learner.model)
        tensors = tensors_of(parts)
        state = tensors["learner"]["modules"]["model"]
        loading.save(parts.learner.model, parts.eval_engine.model, state, folder)
        parts.tokenizer.save_pretrained(folder)
        if place.progress is not None:
            state = {
                "step": place.step,
                "place": {name: value for name, value in vars(place).items() if name != "tables"},
                "pass_at": display.pass_at,
                "config": parts.settings,
                "base": {fact: records.info[fact] for fact in BASE},
                "tensors": tensors,
            }
            checkpoints.write(folder, state, place.tables)
    if place.progress is not None:
        records.forget_checkpoints(keep)
