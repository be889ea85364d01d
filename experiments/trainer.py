"""The training loop, top to bottom.

The way of a batch: problems → responses of the rollout policy → verdicts → rewards → the
algorithm's targets → gradients → optimiser steps → new weights for the rollout policy. Offline
programs may stand beside the responses. The rollout policy may take the weights later
(`train.sync_every`, `train.lag`); evaluation always uses the trained weights.

A run can stop anywhere and resume from its last checkpoint to the same bits. After each update, and
again after its measurement, the loop notes its state (`ResumeState`). A checkpoint holds the last
such state and the weights, which nothing has changed since. Random streams are seeded by name and
step, so they have no position to keep.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from experiments import errors
from experiments.build import Parts, build
from experiments.config import preflight
from experiments.config.schema import RunConfig
from experiments.engine_check import kl_to_base
from experiments.evaluation import pass_at_each
from experiments.policy import loading, lora
from experiments.replay import sample_log
from experiments.rollout import prefixes
from experiments.rollout.rewards import (
    FIRST_AFTER,
    LearningSigns,
    sample_lines,
    sample_metrics,
    sample_table,
)
from experiments.run_dir import checkpoints
from experiments.run_dir.interrupts import defer_interrupts, raise_interrupts
from experiments.run_dir.loggers import open_loggers
from experiments.run_dir.progress import Display
from experiments.run_dir.records import BEST, Records
from experiments.runtime.base import SINGLE_PROCESS, Runtime
from experiments.sample import Sample

Row = dict[str, Any]  # of metrics.parquet
_opened: set[str] = set()  # opening lines of the sweep's jobs before in this process

# fact in run.json that a resumed run must share → the keys behind it
BASE = {
    "weights": "model.path",
    "data_hash": "task.path or task.prompt",
    "prompts_hash": "task.prompt, or the tokenizer or chat template in model.path",
    "observations_hash": "task.feedback_prompt, or the chat template in model.path",
}


@dataclass
class ResumeState:
    """How far a run has come, and the state of its parts there."""

    step: int = 0
    row: Row | None = None  # of a step that is trained and not yet measured
    best: float = float("-inf")  # pass@k of the best evaluation of trained weights
    states: dict[str, Any] | None = None  # of the parts; None: an update is half done
    pass_at: dict[int, float] = field(default_factory=dict)  # of the last evaluation

    @property
    def recorded(self) -> int:
        """Steps whose rows and evaluations are recorded."""
        return self.step if self.row is None else self.step - 1


def train(
    config: RunConfig,
    folder: Path | None = None,
    runtime: Runtime = SINGLE_PROCESS,
    in_sweep: bool = False,
) -> errors.End:
    """Run a configuration, or resume the run in `folder`; return how it ended.

    Ctrl-C and errors end a run cleanly, with its rows, weights and status on disk. `runtime`: how
    the run is distributed. `in_sweep`: no samples are shown, and no opening line twice.

    Raises UserError, and OSError on a full disk, if no run folder can be made or resumed.
    """
    raise_interrupts()
    loading.set_up_torch(config.model.threads)
    torch.manual_seed(config.seed)
    device = str(loading.pick_device(config.model.device))
    config = preflight.resolve_defaults(config, device)
    display = Display(config.steps)
    checkpoint = checkpoints.latest(folder, display.say) if folder else None
    state = ResumeState(**checkpoint["resume"]) if checkpoint else ResumeState()
    if config.steps < state.step:
        raise errors.UserError(f"{folder}: steps={config.steps}, but {state.step} are done")
    records = Records(config, folder, state.recorded, checkpoint["folder"] if checkpoint else None)
    sample_log.truncate(records.folder, state.step)
    sample_log.truncate(records.folder, state.step, prefixes.FOLDER)
    try:
        with display, build(config, records, runtime, display.activity) as parts:
            lines = [*preflight.opening_lines(config, device, parts.learner.algorithm.needs.share)]
            if warning := preflight.final_split_warning(config, records.info.get("study")):
                records.describe(test_split_warning=warning)
                lines.append(warning)
            lines += [f"problems: {parts.problems}", f"sandbox: {parts.sandbox}"]
            if in_sweep:
                lines = [line for line in lines if line not in _opened]
                parts.logprob_check.reported = not lines  # with this model and engine
                _opened.update(lines)
            display.say(*lines)
            if checkpoint:
                check_base(records, checkpoint["base"])
                assert state.states is not None  # checkpoints hold no half update
                place = records.final_name(checkpoint["folder"])
                parts.restore(place, state.states, checkpoint["tables"])
                display.pass_at = state.pass_at
                display.say(f"resuming after step {state.step} in {records.folder}")
            del checkpoint  # its tables are large
            Trainer(config, parts, records, display, state, not in_sweep).run()
        records.describe(pass_at=display.pass_at)
        records.finish("finished")
    except KeyboardInterrupt:
        records.finish("interrupted")
        return errors.End("interrupted", records.folder)
    except Exception as error:
        expected, message = errors.is_expected(error), errors.one_line(error)
        if not expected:
            message += f"; more in {records.keep_traceback()}"
        records.finish("failed", message)
        return errors.End("failed", records.folder, message, expected=expected)
    return errors.End("finished", records.folder, pass_at=display.pass_at)


def check_base(records: Records, base: dict[str, Any]) -> None:
    """Raise UserError if model, data or texts are not those that the run began with.

    Log-probs of replayed responses hold in the context that they were computed in. run.json then
    has the checkpoint's facts again.
    """
    for fact, before in base.items():
        if (now := records.info[fact]) != before:
            records.describe(**base)
            raise errors.UserError(
                f"{BASE[fact]}: {fact} {now}, but the checkpoint was written with {before}; "
                "restore what the run began with"
            )


@dataclass
class Trainer:
    """A run whose parts are built, and restored if it is resumed."""

    config: RunConfig
    parts: Parts
    records: Records
    display: Display
    state: ResumeState
    prints_samples: bool = False  # every `eval.show` steps

    def __post_init__(self) -> None:
        config, parts, recorded = self.config, self.parts, self.state.recorded
        self.tables, self.learner, self.ledger = parts.tables(), parts.learner, parts.ledger
        self.signs, folder = LearningSigns(config), self.records.folder
        self.loggers = open_loggers(config, folder, recorded, self.display.say)

    def run(self) -> None:
        """Train to the last step. Always save the weights of the last complete optimiser step."""
        status = "failed"
        try:
            self.loop()
            status = "finished"
        except BaseException as error:
            status = "interrupted" if isinstance(error, KeyboardInterrupt) else "failed"
            if self.learner.batches and not errors.is_full(error):
                try:
                    self.save("interrupted")
                except Exception as failure:
                    self.display.say(f"the weights could not be saved: {errors.one_line(failure)}")
            raise
        finally:
            self.loggers.close(status)
        if self.config.steps:
            self.save("final")

    def loop(self) -> None:
        """Train from the state's step to the last one, and evaluate where it is due."""
        steps, every = self.config.steps, self.config.train.checkpoint_every
        if self.state.row is not None:  # resumed between an update and its measurement
            self.measure(self.state.step, dict(self.state.row), time.monotonic())
        elif not self.state.step:
            self.evaluate(0)
        for step in range(self.state.step + 1, steps + 1):
            begin = time.monotonic()
            row = self.train_step(step)
            self.measure(step, row, begin)
            if self.signs.steps == FIRST_AFTER and step < steps:
                self.display.say(*self.signs.lines())
            if every and step % every == 0 and step < steps:
                self.save(f"step-{step}")
        self.display.say(*self.signs.lines())
        self.records.describe(**self.parts.rollouts.description)

    def train_step(self, step: int) -> Row:
        """Generate a batch, judge it and learn from it; return its metrics."""
        parts, generated_before = self.parts, self.ledger.counts.generated_tokens
        lag_in_steps = parts.weight_sync.begin(step)
        row: Row = {"step": step, "policy_lag": lag_in_steps}
        if parts.initial_values:
            steps_left = self.config.steps - step + 1
            parts.initial_values.reference.prefetch(parts.rollouts.upcoming_prompts, steps_left)
        parts.prefetch(step)
        samples = parts.rollouts.collect(step)
        parts.weight_sync.check(samples)
        if self.config.train.keep_samples:
            sample_log.write(self.records.folder, step, samples, parts.judge.version)
        if parts.logprob_check.due(step, lag_in_steps):
            row |= self.check_logprobs(step, samples)
        self.signs.note(samples)
        show_every = self.config.eval.show
        if show_every and (step == 1 or step % show_every == 0):
            self.loggers.samples(step, lambda: sample_table(samples, parts.tokenizer))
            if self.prints_samples:
                self.display.say(*sample_lines(step, samples, parts.tokenizer))
        if parts.prefix_values:
            samples, measured = parts.prefix_values.add(samples, step)
            row |= measured
        row |= sample_metrics(samples, self.learner.policy.version)
        row |= parts.rollouts.metrics()
        row["generated_tokens"] = self.ledger.counts.generated_tokens - generated_before
        with defer_interrupts():  # an interrupt waits for whole weights
            self.state.states = None
            if samples:
                row |= self.update(step, samples)
            with self.ledger.phase("sync"):
                self.ledger.counts.weight_syncs += parts.weight_sync.follow(step)
            self.note(step, row)
        return row

    def update(self, step: int, samples: list[Sample]) -> dict[str, float]:
        """Take the optimiser steps of a batch; return their metrics."""
        train, counts = self.config.train, self.ledger.counts
        with self.ledger.phase("train"):
            shaped = self.parts.reward_shaping.shape(samples, step)
            metrics = self.learner.update(shaped, train.group_size, self.parts.initial_values)
        counts.trained_tokens += sum(sample.generated for sample in samples) * train.epochs
        counts.optimiser_steps = self.learner.policy.version
        return metrics

    def measure(self, step: int, row: Row, begin: float) -> None:
        """Record the metrics of a finished step, and evaluate where it is due.

        `begin`: when the step began, by time.monotonic.
        """
        every = self.config.eval.every
        due = step == self.config.steps or bool(every and step % every == 0)
        row["eval/kl_ref"] = float("nan")
        if due:
            with self.ledger.phase("sync"):
                self.parts.eval_engine.sync(self.learner.policy)
            if self.config.eval.kl_samples:
                row |= self.kl_metrics(step)
        self.parts.count_judging()
        row |= self.ledger.columns()
        self.records.step(row)
        self.loggers.step(row)
        self.display.step(step, row, time.monotonic() - begin)
        if due:
            self.evaluate(step)
        self.note(step, None)
        score = self.display.pass_at[min(self.display.pass_at)]
        if due and self.config.train.keep_best and score > self.state.best:
            self.state.best = score
            self.save(BEST)

    def evaluate(self, step: int) -> None:
        """Evaluate the trained weights; record every sample and show pass@k.

        At the start and the end, `eval.further_temperatures` follow.
        """
        settings, evaluation = self.config.eval, self.parts.evaluation
        further = settings.further_temperatures if step in (0, self.config.steps) else []
        for temperature in (None, *further):
            at = "" if temperature is None else f", temperature {temperature:g}"
            name = f"evaluation at step {step}{at}"
            total = len(evaluation.prompts) * settings.samples
            with self.display.evaluating(name, total):
                rows, cache_file = evaluation.rows(step, temperature)
            self.records.evaluation(step, rows, temperature)
            scores = pass_at_each(settings.k, rows)
            self.display.evaluated(name, scores, cache_file, main=temperature is None)
            spent = self.ledger.columns()
            self.loggers.evaluation(step, rows, settings.k, spent, temperature)

    def kl_metrics(self, step: int) -> dict[str, float]:
        """Return the KL of the trained weights to the base, in nats a response.

        A stale rollout policy rarely matches the learner. The log-prob check then also runs here,
        with the engine of the trained weights.
        """
        check, evaluation = self.parts.logprob_check, self.parts.evaluation
        samples = self.config.eval.kl_samples
        with self.ledger.phase("evaluate"):
            kl, mismatch = kl_to_base(
                step, samples, evaluation.prompts, evaluation.responder, check
            )
        if not self.config.train.keeps_rollout_copy or not check.every:
            return {"eval/kl_ref": kl}
        self.display.say(*check.news(f"step {step}, with the trained weights", mismatch))
        return {"eval/kl_ref": kl} | mismatch.metrics()

    def check_logprobs(self, step: int, samples: list[Sample]) -> dict[str, float]:
        """Compare the rollout engine's log-probs with the learner's; return metrics."""
        check = self.parts.logprob_check
        with self.ledger.phase("sync"):
            self.ledger.activity.begin("comparing log-probs of engine and learner")
            mismatch = check.check(step, samples)
        self.display.say(*check.news(f"step {step}", mismatch))
        return mismatch.metrics()

    def note(self, step: int, row: Row | None) -> None:
        """Take the state after `step`; `row`: its metrics while it is not measured yet."""
        self.state.step, self.state.row = step, None if row is None else dict(row)
        self.state.states, self.tables = self.parts.states(), self.parts.tables()
        self.state.pass_at = dict(self.display.pass_at)

    def save(self, name: str) -> None:
        """Write a checkpoint; an interrupt waits until it is on disk.

        After an update that broke off half way only weights are written, because the run resumes
        from the checkpoint before. If that one has this name, it stays.
        """
        parts, records, whole = self.parts, self.records, self.state.states is not None
        if not whole and (records.folder / "checkpoints" / name / checkpoints.SEAL).exists():
            return
        keep = self.config.train.keep_checkpoints if whole else len(records.info["checkpoints"]) + 1
        with defer_interrupts(), records.checkpoint(name, self.learner.batches, keep) as folder:
            if parts.eval_engine.policy is not self.learner.policy:
                parts.eval_engine.sync(self.learner.policy)
            tensors = parts.tensors()
            weights = tensors["learner"]["modules"]["model"]
            lora.save(self.learner.policy, parts.eval_engine.policy, weights, folder)
            parts.tokenizer.save_pretrained(folder)
            if whole:
                state = {
                    "step": self.state.step,
                    "resume": vars(self.state),
                    "base": {fact: records.info[fact] for fact in BASE},
                    "tensors": tensors,
                }
                checkpoints.write(folder, state, self.tables)
