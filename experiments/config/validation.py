"""Checks of a configuration that need more than one value's type, such as combinations.

They run before anything heavy starts, for all jobs of a sweep before the first one.
"""

from __future__ import annotations

from math import isfinite
from typing import TYPE_CHECKING

from algorithms.tensors import CORRECTION_BOUNDS
from experiments.config.dependencies import check_peft, check_ray, check_vllm
from experiments.config.replay_validation import check_replay
from experiments.errors import UserError

if TYPE_CHECKING:
    from algorithms.base import Needs
    from experiments.config.schema import EngineConfig, EvalConfig, RunConfig, TrainConfig

SEEDS = 2**63  # beyond, torch takes no seed


def validate(config: RunConfig, needs: Needs) -> None:
    """Raise UserError, which names the key, the value and the cure."""
    if config.seed >= SEEDS:
        raise UserError(f"seed={config.seed}; it must be below 2**63")
    _check_task(config)
    _check_engine(config.engine)
    if config.runtime.name == "torchrun":
        _check_torchrun(config)
    if config.runtime.name == "ray":
        _check_ray(config)
    if config.model.adapter != "none":
        check_peft()
    _check_evaluation(config)
    _check_steps(config.train)
    _check_groups(config, needs)
    _check_critic(needs)
    _check_reward(config, needs)
    _check_reference(config, needs)
    _check_initial_values(config, needs)
    _check_shares(config.train)
    _check_correction(config, needs)
    _check_missing_logprobs(config, needs)
    check_replay(config)
    _check_lag(config, needs)


def _check_task(c: RunConfig) -> None:
    if c.task.evaluation_only and c.steps:
        raise UserError(
            f"task={c.task.name} with steps={c.steps}: it is for evaluation only "
            f"({c.task.evaluation_only}); set steps=0 eval.split=test, or train on another task "
            "and name this one's rows in task.test_path and task.test_rows"
        )
    several = f"task.turns={c.task.turns}" if c.task.turns > 1 else f"eval.turns={c.eval.turns}"
    if max(c.task.turns, c.eval_turns) > 1 and c.task.environment is not None:
        raise UserError(
            f"{several} with task.environment={c.task.environment}: feedback is what a program "
            f"gave on the statement's tests; set {several.partition('=')[0]}=1"
        )


def _check_initial_values(c: RunConfig, needs: Needs) -> None:
    """Raise UserError where a reference response would depend on those beside it."""
    if needs.initial_value != "none" and c.task.turns > 1 and c.task.feedback == "foreign":
        q0 = f" with algo.q0={c.algo.q0}" if hasattr(c.algo, "q0") else ""
        cure = "use algo.q0=group" if q0 else "use task.feedback=tests or withheld"
        raise UserError(
            f"task.feedback=foreign under algo={c.algo.name}{q0}: a response of the reference "
            f"would depend on the prompts that are generated with it; {cure}"
        )


def accepts_missing_logprobs(config: RunConfig, needs: Needs) -> bool:
    """Return whether the algorithm may train on responses without behaviour log-probs."""
    with_ratio = needs.behaviour and needs.max_lag is None
    return needs.off_policy or (with_ratio and config.train.missing_logprobs != "reject")


def _check_torchrun(c: RunConfig) -> None:
    if c.engine.device != "auto":
        raise UserError(
            f"runtime=torchrun with engine.device={c.engine.device}: each rank generates on the "
            "GPU on which it trains; use engine.device=auto"
        )


def _check_ray(c: RunConfig) -> None:
    if c.engine.device != "auto":
        raise UserError(
            f"runtime=ray with engine.device={c.engine.device}: Ray gives each engine a GPU of its "
            "own; use engine.device=auto"
        )
    check_ray()


def _check_engine(e: EngineConfig) -> None:
    if e.name == "hf":
        return
    if e.colocate and e.device != "auto":
        raise UserError(
            f"engine.colocate=true with engine.device={e.device}: vLLM can sleep only on "
            "the learner's GPU; set engine.device=auto or engine.colocate=false"
        )
    if e.name == "vllm":
        check_vllm()


def _check_evaluation(c: RunConfig) -> None:
    if not any(k <= c.eval.samples for k in c.eval.k):
        raise UserError(
            f"eval.k={c.eval.k}: at least one k must be at most eval.samples={c.eval.samples}"
        )
    _check_further_temperatures(c.eval)
    if c.train.keep_best and c.eval.split != "tune":
        raise UserError(
            f"train.keep_best=true with eval.split={c.eval.split}: scores on the split that "
            "selects the weights are biased; set eval.split=tune, and evaluate the "
            "checkpoint afterwards with model.path=RUN/checkpoints/best steps=0"
        )
    if c.eval.final and c.eval.split != "test":
        raise UserError(
            f"eval.final=true with eval.split={c.eval.split}: a final evaluation is on the test "
            "split; leave eval.final at false, which `make study` sets"
        )


def _check_further_temperatures(e: EvalConfig) -> None:
    """Raise UserError if a temperature is infinite, or evaluated twice.

    Names of metrics and files show six digits, so temperatures must differ in these.
    """
    setting = f"eval.further_temperatures={e.further_temperatures}"
    shown = [f"{abs(temperature):g}" for temperature in e.further_temperatures]
    for temperature, text in zip(e.further_temperatures, shown, strict=True):
        if not isfinite(temperature):
            raise UserError(f"{setting}: {text} is not a finite number; remove it")
        if text == f"{e.temperature:g}":
            raise UserError(
                f"{setting}: {text} is eval.temperature, at which every evaluation is made; "
                "remove it from the list"
            )
        if shown.count(text) > 1:
            raise UserError(f"{setting}: {text} is listed twice; list it once")


def _check_steps(t: TrainConfig) -> None:
    if t.lag and t.sync_every > 1:
        raise UserError(
            f"train.lag={t.lag} with train.sync_every={t.sync_every}: both set the age of the "
            "rollout policy; use train.sync_every=1 or train.lag=0"
        )
    default = type(t).max_grad_norm
    if t.clip_quantile is not None and t.max_grad_norm != default:
        bound = "null" if t.max_grad_norm is None else f"{t.max_grad_norm:g}"
        raise UserError(
            f"train.clip_quantile={t.clip_quantile:g} with train.max_grad_norm={bound}: both set "
            f"the bound of a step's gradient norm; leave train.max_grad_norm at {default:g}, or "
            "set train.clip_quantile=null"
        )
    if t.minibatches > t.prompts:
        raise UserError(
            f"train.minibatches={t.minibatches} of train.prompts={t.prompts}: each "
            "optimiser step needs at least one prompt; use at most train.prompts"
        )


def _check_groups(c: RunConfig, needs: Needs) -> None:
    t = c.train
    if t.group_size < needs.groups:
        raise UserError(
            f"train.group_size={t.group_size} under algo={c.algo.name}: it compares the "
            f"responses to a prompt with each other; use at least {needs.groups}"
        )
    if t.resample_zero_variance and t.group_size < 2:
        raise UserError(
            "train.resample_zero_variance=true with train.group_size=1: a group of one has no "
            "variance; use false, or a larger group"
        )


def _check_critic(needs: Needs) -> None:
    if needs.critic == "none" and needs.critic_warmup:
        raise UserError(
            f"algo.critic=none with algo.critic_warmup={needs.critic_warmup}: these batches would "
            "train nothing; set algo.critic_warmup=0, or algo.critic=separate"
        )


def _check_reward(c: RunConfig, needs: Needs) -> None:
    reward = c.task.reward
    runs_tests = c.task.environment is None  # programs are judged on a problem's tests
    if runs_tests and reward.needs_all_tests and c.judge.early_stop:
        raise UserError(
            f"task.reward.kind={reward.kind} with judge.early_stop=true: the share of passed "
            "tests needs all tests to run; set judge.early_stop=false"
        )
    if reward.overlong is not None and needs.best_reward == "success":
        raise UserError(
            f"task.reward.overlong={reward.overlong} under algo={c.algo.name}: it takes a response "
            "for accepted only at the best reward, so the penalty would turn long accepted "
            "responses into failures; use null, or an objective that reads the reward's size, such "
            "as grpo or spo"
        )
    if reward.shapes_batches and (needs.best_reward or needs.initial_value != "none"):
        shaped = next(key for key in ("dither", "conciseness") if getattr(reward, key))
        raise UserError(
            f"task.reward.{shaped}={getattr(reward, shaped)} under algo={c.algo.name}: it needs "
            "to know which responses have the best reward, or the rewards of reference responses, "
            "and shaped rewards do not show that; use 0.0, or an objective that accepts them, such "
            "as grpo"
        )


def _check_reference(c: RunConfig, needs: Needs) -> None:
    """Raise UserError if a reference that moves is not read, or is expected to stay."""
    every = c.train.reference_every
    if every is None:
        return
    setting = f"train.reference_every={every}"
    if not needs.reference:
        no_kl = " with algo.kl_coef=0" if getattr(c.algo, "kl_coef", None) == 0 else ""
        cure = ", or a KL weight above 0" if no_kl else ""
        raise UserError(
            f"{setting} under algo={c.algo.name}{no_kl}: the objective reads no reference; use "
            f"train.reference_every=null{cure}"
        )
    if needs.initial_value != "none":
        q0 = f" with algo.q0={c.algo.q0}" if hasattr(c.algo, "q0") else ""
        cure = "algo.q0=group, which works with any reference" if q0 else "null"
        raise UserError(
            f"{setting} under algo={c.algo.name}{q0}: its initial values come from responses of "
            f"the initial model, not of a reference that moves; use {cure}"
        )
    if "reference" in needs.copies:
        raise UserError(
            f"{setting} under algo={c.algo.name}: it replaces the reference itself "
            f"after {c.algo.reincarnate_at} batches; use train.reference_every=null, or "
            "algo.reincarnate_at=null"
        )
    if c.train.missing_logprobs == "reference":
        raise UserError(
            f"{setting} with train.missing_logprobs=reference: programs without log-probs get the "
            "initial model's, which the reference leaves; use train.missing_logprobs=recomputed, "
            "or train.reference_every=null"
        )


def _check_shares(t: TrainConfig) -> None:
    for key in ("offline_share", "replay_share"):
        share = getattr(t, key)
        count = round(t.group_size * share)
        if abs(count - t.group_size * share) > 1e-9:
            raise UserError(
                f"train.{key}={share} of train.group_size={t.group_size} is not a whole number "
                f"of responses; try {count / t.group_size:g}"
            )
    if t.offline_share + t.replay_share > 1:
        raise UserError(
            f"train.offline_share={t.offline_share} and train.replay_share={t.replay_share} add "
            "up to more than 1; lower one"
        )
    if t.curriculum != "none" and t.offline_share + t.replay_share == 1:
        shares = [
            f"train.{key}={getattr(t, key)}"
            for key in ("offline_share", "replay_share")
            if getattr(t, key)
        ]
        raise UserError(
            f"train.curriculum={t.curriculum} with {' and '.join(shares)}: no response is fresh, "
            "so no pass rate is known; use train.curriculum=none, or a lower share"
        )


def _check_lag(c: RunConfig, needs: Needs) -> None:
    """Raise UserError if an algorithm without a ratio gets responses of too old weights."""
    t, lag = c.train, c.train.greatest_age
    keys = {"lag": 0, "sync_every": 1, "minibatches": 1, "epochs": 1, "replay_share": 0.0}
    causes = [f"train.{key}={getattr(t, key)}" for key in keys if getattr(t, key) != keys[key]]
    r, run_steps = c.replay, c.steps * t.minibatches * t.epochs  # optimiser steps of the run
    if t.replay_share or r.frozen:
        if r.from_runs or r.files:
            causes.append("responses of other policies")
            max_age = run_steps
        else:
            causes.append(f"replay.max_age={r.max_age}")
            steps_within = t.minibatches * t.epochs - 1
            max_age = run_steps if r.max_age is None else r.max_age + steps_within
        lag = max(lag, min(max_age, run_steps))
    if needs.max_lag is not None and lag > needs.max_lag:
        adjustable = "max_lag" in vars(c.algo)
        more = f", or allow more with algo.max_lag={lag}" if adjustable else ""
        raise UserError(
            f"{' with '.join(causes)} under algo={c.algo.name}: without an importance ratio it "
            f"accepts a rollout policy at most {needs.max_lag} optimiser steps behind, and here "
            f"the lag is up to {lag}; lower it{more}"
        )


def _check_correction(c: RunConfig, needs: Needs) -> None:
    t = c.train
    if t.correction != "none" and needs.behaviour != "ratio":
        raise UserError(
            f"train.correction={t.correction} under algo={c.algo.name}: it has no ratio to "
            "correct, or corrects it itself; use train.correction=none"
        )
    if t.correction not in CORRECTION_BOUNDS and (t.correction_low, t.correction_high) != (
        None,
        None,
    ):
        raise UserError(
            f"train.correction={t.correction} has no bounds; leave train.correction_low and "
            f"train.correction_high at null, or use one of {', '.join(CORRECTION_BOUNDS)}"
        )
    low, high = t.correction_bounds
    if low > high:
        raise UserError(f"train.correction_low={low:g} is above train.correction_high={high:g}")


def _check_missing_logprobs(c: RunConfig, needs: Needs) -> None:
    t = c.train
    if t.offline_share and not accepts_missing_logprobs(c, needs):
        with_ratio = needs.behaviour and needs.max_lag is None
        raise UserError(
            f"train.offline_share={t.offline_share} under algo={c.algo.name}: it is correct "
            "only for responses of its own policy, and offline programs have no log-probs; use 0, "
            "or an algorithm that learns from any source (`python -m algorithms` lists them)"
            + (
                "; train.missing_logprobs=reference or =recomputed substitutes log-probs"
                if with_ratio
                else ""
            )
        )
