"""The training loop, top to bottom.

The way of a batch: problems → responses of the rollout policy → verdicts → rewards → the
algorithm's targets → gradients → optimiser steps → new weights for the rollout policy. Offline
programs may stand beside the responses. The rollout policy may take the weights later
(`train.sync_every`, `train.lag`); evaluation always uses the trained weights.

A run can stop anywhere and resume from its last checkpoint to the same bits. After each update, and
again after its measurement, the loop notes its state (`ResumeState`). A checkpoint holds the last
such state and the weights, which nothing has changed since.
"""

from __future__ import annotations

import time
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch

from experiments.build import Parts, build
from experiments.config.resolve_defaults import (
    final_split_warning,
    missing_share_warning,
    resolve_defaults,
    summary,
)
from experiments.config.resume import check_same
from experiments.config.schema import RunConfig
from experiments.engine_check import kl_to_base
from experiments.errors import UserError, is_expected, is_full, one_line
from experiments.evaluation import evaluate, evaluate_base, pass_at_each
from experiments.policy import loading
from experiments.replay import sample_log
from experiments.rollout.curriculum import no_effect_warning
from experiments.rollout.learning_signs import FIRST_AFTER, LearningSigns
from experiments.rollout.rewards import sample_lines, sample_metrics
from experiments.run_dir import checkpoints
from experiments.run_dir.atomic_files import final_name
from experiments.run_dir.interrupts import defer_interrupts, raise_interrupts
from experiments.run_dir.loggers import open_loggers
from experiments.run_dir.progress import Display
from experiments.run_dir.records import BEST, Records
from experiments.run_dir.resume_state import BASE, ResumeState, check_base, restore, tensors_of
from experiments.runtime.base import SINGLE_PROCESS, Runtime
from experiments.sample import Sample

Row = dict[str, Any]  # of metrics.parquet


@dataclass(frozen=True)
class Outcome:
    """How a run ended."""

    folder: Path | None  # None: it failed before there was one
    status: str  # finished | interrupted | failed
    error: str | None = None  # in one line
    expected: bool = True  # the line says all; else the folder's traceback.txt says more
    pass_at: dict[int, float] = field(default_factory=dict)  # k → pass@k of the last evaluation


def train(
    config: RunConfig,
    folder: Path | None = None,
    label: str = "",
    runtime: Runtime = SINGLE_PROCESS,
    in_sweep: bool = False,
) -> Outcome:
    """Run a configuration, or resume the run in `folder`; return how it ended.

    Ctrl-C and errors end a run cleanly, with its rows, weights and status on disk. `label` begins
    its lines of output, beside other runs'. `runtime`: how the run is distributed. `in_sweep`: no
    samples are shown.

    Raises UserError, and OSError on a full disk, if no run folder can be made or resumed.
    """
    raise_interrupts()
    loading.set_up_torch(config.model.threads)
    torch.manual_seed(config.seed)
    device = str(loading.pick_device(config.model.device))
    config = resolve_defaults(config, device)
    display = Display(config.steps, label)
    checkpoint = checkpoints.latest(folder, display.say) if folder else None
    where = f"{folder}: its checkpoint"
    state = _state_of(checkpoint, config, where) if checkpoint else ResumeState()
    records = Records(config, folder, state.recorded, checkpoint["folder"] if checkpoint else None)
    sample_log.truncate(records.folder, state.step)
    try:
        with display, build(config, records, runtime, display.activity) as parts:
            _describe(config, device, parts, records, display)
            if checkpoint:
                check_base(records, checkpoint["base"])
                place = final_name(checkpoint["folder"])
                assert state.part_states is not None  # checkpoints hold no half update
                restore(parts, state.part_states, place, checkpoint["tables"])
                display.pass_at = checkpoint["pass_at"]
                display.say(f"resuming after step {state.step} in {records.folder}")
            del checkpoint  # its tables are large
            show_every = 0 if in_sweep else config.eval.show
            Trainer(config, parts, records, display, state, show_every).run()
        records.describe(pass_at=display.pass_at)
        records.finish("finished")
    except KeyboardInterrupt:
        records.finish("interrupted")
        return Outcome(records.folder, "interrupted", pass_at=display.pass_at)
    except Exception as error:
        expected, message = is_expected(error), one_line(error)
        if not expected:
            message += f"; more in {records.keep_traceback()}"
        if is_full(error):
            message += f"; {records.how_to_resume()}"
        records.finish("failed", message)
        return Outcome(records.folder, "failed", message, expected, display.pass_at)
    return Outcome(records.folder, "finished", pass_at=display.pass_at)


def _state_of(checkpoint: dict[str, Any], config: RunConfig, where: str) -> ResumeState:
    """Return the state in a checkpoint. Raises UserError if it is of another run."""
    if "resume_state" not in checkpoint:
        raise UserError(f"{where} was written by an older version of this code; begin a new run")
    check_same(checkpoint["config"], asdict(config), where)
    state = ResumeState(**checkpoint["resume_state"])
    if config.steps < state.step:
        raise UserError(
            f"{where}: steps={config.steps}, but {state.step} are done; set {state.step} or more"
        )
    return state


def _describe(
    config: RunConfig,
    device: str,
    parts: Parts,
    records: Records,
    display: Display,
) -> None:
    """Print what the run was resolved to."""
    display.say(summary(config, device))
    notes = [
        missing_share_warning(config, parts.learner.algorithm.needs.share),
        no_effect_warning(config, records.info["train_problems"]),
    ]
    display.say_all(filter(None, notes))
    if warning := final_split_warning(config, records.info.get("study")):
        display.say(warning)
        records.describe(test_split_warning=warning)
    display.say(f"problems: {parts.problems}")
    display.say(f"sandbox: {parts.environments.name} ({parts.environments.strength})")


class Trainer:
    """A run whose parts are built, and restored if it is resumed."""

    def __init__(
        self,
        config: RunConfig,
        parts: Parts,
        records: Records,
        display: Display,
        state: ResumeState,
        show_every: int = 0,
    ) -> None:
        """`show_every`: steps between the responses that are shown; 0: none."""
        self.config, self.parts, self.records = config, parts, records
        self.display, self.state = display, state
        self.learner, self.ledger = parts.learner, parts.ledger
        self.show_every = show_every
        self.signs = LearningSigns(config)
        self.loggers = open_loggers(
            config, records.folder, parts.settings, state.recorded, display.say
        )

    def run(self) -> None:
        """Train to the last step. Always save the weights of the last complete optimiser step."""
        status = "failed"
        try:
            self.loop()
            status = "finished"
        except BaseException as error:
            status = "interrupted" if isinstance(error, KeyboardInterrupt) else "failed"
            if self.learner.batches and not is_full(error):
                try:
                    self.save("interrupted")
                except Exception as failure:
                    self.display.say(f"the weights could not be saved: {one_line(failure)}")
            raise
        finally:
            self.loggers.close(status)
        if self.config.steps:
            self.save("final")

    def loop(self) -> None:
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
                self.display.say_all(self.signs.lines())
            if every and step % every == 0 and step < steps:
                self.save(f"step-{step}")
        self.display.say_all(self.signs.lines())
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
        if parts.sample_log:
            parts.sample_log.write(step, samples)
        if parts.logprob_check.due(step, lag_in_steps):
            row |= self.check_logprobs(step, samples)
        self.signs.note(samples)
        if self.show_every and (step == 1 or step % self.show_every == 0):
            self.display.say_all(sample_lines(step, samples, parts.tokenizer))
        row |= sample_metrics(samples, self.learner.policy.version)
        row |= parts.rollouts.metrics()
        row["generated_tokens"] = self.ledger.counts.generated_tokens - generated_before
        with defer_interrupts():  # an interrupt waits for whole weights
            self.state.part_states = None
            if samples:
                row |= self.update(step, samples)
            with self.ledger.phase("sync"):
                self.ledger.counts.weight_syncs += parts.weight_sync.follow(step)
            self.state.note(parts, step, row)
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
        if due:
            with self.ledger.phase("sync"):
                self.parts.eval_engine.sync(self.learner.policy)
        row |= self.kl_metrics(step) if due else {"eval/kl_ref": float("nan")}
        self.parts.count_judging()
        row |= self.ledger.columns()
        self.records.step(row)
        self.loggers.step(row)
        self.display.step(step, row, time.monotonic() - begin)
        if due:
            self.evaluate(step)
        self.state.note(self.parts, step, None)
        score = self.display.pass_at[min(self.display.pass_at)]
        if due and self.config.train.keep_best and score > self.state.best:
            self.state.best = score
            self.save(BEST)

    def evaluate(self, step: int) -> None:
        """Evaluate the trained weights; record every sample and show pass@k.

        At the start and the end, `eval.further_temperatures` follow.
        """
        ks = self.config.eval.k
        rows, cache_file = self.evaluation_rows(step)
        self.records.evaluation(step, rows)
        self.display.evaluated(step, pass_at_each(ks, rows), cache_file)
        self.loggers.evaluation(step, rows, ks, self.ledger.columns())
        if step not in (0, self.config.steps):
            return
        for temperature in self.config.eval.further_temperatures:
            rows, cache_file = self.evaluation_rows(step, temperature)
            self.records.further_evaluation(step, temperature, rows)
            self.display.evaluated(step, pass_at_each(ks, rows), cache_file, temperature)
            self.loggers.further_evaluation(step, temperature, rows, ks)

    def evaluation_rows(
        self, step: int, temperature: float | None = None
    ) -> tuple[list[Row], Path | None]:
        """Return the rows of an evaluation, and the cache file that they were read from."""
        parts = self.parts
        total = len(parts.eval_prompts) * self.config.eval.samples
        advance, end = self.display.evaluating(step, total, temperature)
        cache_file = None
        with self.ledger.phase("evaluate"):
            if step == 0:
                rows, cache_file = evaluate_base(
                    self.config, parts, self.records.info, advance, temperature
                )
            else:
                rows = evaluate(
                    self.config,
                    step,
                    parts.eval_prompts,
                    parts.eval_engine,
                    parts.eval_judge,
                    parts.tokenizer,
                    advance,
                    temperature,
                    self.ledger.activity,
                    parts.eval_dialogue,
                )
                self.ledger.charge_recalled("evaluate", parts.eval_judge.stats.recalled_s)
        end()
        return rows, cache_file

    def kl_metrics(self, step: int) -> dict[str, float]:
        """Return the KL of the trained weights to the base, in nats a response; NaN: not measured.

        A stale rollout policy rarely matches the learner. The log-prob check then also runs here,
        with the engine of the trained weights.
        """
        if not self.config.eval.kl_samples:
            return {"eval/kl_ref": float("nan")}
        check = self.parts.logprob_check
        with self.ledger.phase("evaluate"):
            kl, mismatch = kl_to_base(
                self.config,
                step,
                self.parts.eval_prompts,
                self.parts.eval_engine,
                self.learner,
                check.bound,
                self.parts.eval_judge,
                self.parts.eval_dialogue,
            )
        if not self.config.train.keeps_rollout_copy or not check.every:
            return {"eval/kl_ref": kl}
        self.display.say(f"step {step}, with the trained weights: {check.summary(mismatch)}")
        return {"eval/kl_ref": kl} | mismatch.metrics()

    def check_logprobs(self, step: int, samples: list[Sample]) -> dict[str, float]:
        """Compare the rollout engine's log-probs with the learner's, print and return metrics."""
        check = self.parts.logprob_check
        with self.ledger.phase("sync"):
            self.ledger.activity.begin("comparing log-probs of engine and learner")
            mismatch = check.check(step, samples)
        self.display.say(f"step {step}: {check.summary(mismatch)}")
        return mismatch.metrics()

    def save(self, name: str) -> None:
        """Write a checkpoint; an interrupt waits until it is on disk.

        After an update that broke off half way only weights are written, because the run resumes
        from the checkpoint before. If that one has this name, it stays.
        """
        parts, whole = self.parts, self.state.part_states is not None
        if not whole and checkpoints.is_whole(self.records.folder / "checkpoints" / name):
            return
        with defer_interrupts(), self.records.checkpoint(name, self.learner.batches) as folder:
            if parts.eval_engine.policy is not self.learner.policy:
                parts.eval_engine.sync(self.learner.policy)
            tensors = tensors_of(parts)
            weights = tensors["learner"]["modules"]["model"]
            loading.save(self.learner.policy, parts.eval_engine.policy, weights, folder)
            parts.tokenizer.save_pretrained(folder)
            if whole:
                checkpoint = {
                    "step": self.state.step,
                    "resume_state": self.state.plain(),
                    "pass_at": self.display.pass_at,
                    "config": parts.settings,
                    "base": {fact: self.records.info[fact] for fact in BASE},
                    "tensors": tensors,
                }
                checkpoints.write(folder, checkpoint, self.state.tables)
        if whole:
            self.records.forget_checkpoints(self.config.train.keep_checkpoints)
