"""Combinations of keys that would give a wrong or unfair number, or a lost run.

Each is refused in one line that names the keys, their values and what would be right, before
anything heavy starts.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from dataclasses import is_dataclass
from math import gcd, isfinite, prod
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from algorithms.base import Needs
from envs.command_line import load_function, parse_values
from experiments.config.schema import RunConfig, plain_values
from experiments.errors import UserError, is_rank_zero

CHOICES = {"algo", "task", "model", "engine", "sandbox", "runtime"}  # sections with choices
MINI = {"envs.tasks.mini.make": "mini", "envs.tasks.mini.make_long": "mini_long"}
# path of a model of make nano → task of the problems that it was pretrained on
PRETRAINED_ON = {
    "assets/nano": "mini",
    "assets/nano_feedback": "mini",
    "assets/nano_5m": "mini_long",
    **{f"outputs/nano_{size}": "mini_long" for size in ("15m", "25m", "60m")},
}
Fault = tuple[object, str]  # whether the combination is there, and the message


def parse(composed: DictConfig) -> RunConfig:
    """Return the checked configuration. UserError names the key, the value and what is allowed."""
    try:
        if missing := sorted(OmegaConf.missing_keys(composed)):
            raise UserError(
                f"{missing[0]} has no value; give it on the command line: {missing[0]}=..."
            )
        values = plain_values(composed)
        for name in sorted(CHOICES & values.keys()):
            if not isinstance(values[name], dict):
                raise ValueError(
                    f"{name}={values[name]}: no choice of a recorded configuration; set its keys, "
                    f"{name}.KEY=VALUE, or repeat the command in run.json with another {name}"
                )
        core = str(values["algo"]["core"])
        algorithm = load_function(core, "algo.core")
        if not is_dataclass(options := getattr(algorithm, "Config", None)):
            raise ValueError(f"algo.core={core}: no algorithm; it has no dataclass Config")
        algo: Any = parse_values(options, values["algo"], "algo")  # type: ignore[arg-type]
        config = parse_values(RunConfig, values | {"algo": None})
    except (ValueError, OmegaConfBaseException) as error:
        key = getattr(error, "full_key", None)  # of a `${…}` that leads nowhere
        raise UserError(f"{key}: " * bool(key) + str(error).split("\n")[0]) from error
    config.algo = algo
    validate(config, algorithm(algo, config.task.reward.high).needs)
    return config


def print_notes(configs: Sequence[RunConfig]) -> None:
    """Print a line on stderr for each setting that is allowed and may surprise, once."""
    notes = dict.fromkeys(note for config in configs for note in _notes(config))
    for note in notes if is_rank_zero() else ():
        print(f"NOTE: {note}", file=sys.stderr)


def _notes(c: RunConfig) -> Iterator[str]:
    task, prompts, suited = c.task, c.train.prompts, PRETRAINED_ON.get(c.model.path)
    here = MINI.get(str(task.make))
    if suited and suited != here and (here or task.rows or task.parts):
        yield (
            f"model={c.model.name} with task={task.name}: it was pretrained on the problems of "
            f"task={suited}; expect few right programs"
        )
    if above := [k for k in c.eval.k if k > c.eval.samples]:
        yield f"eval.k={c.eval.k} with eval.samples={c.eval.samples}: {above} are left out"
    if prompts > (most := task.train_problems):
        more = "a batch has some problems more than once"
        yield f"train.prompts={prompts} of task.train_problems={most}: {more}"


def validate(config: RunConfig, needs: Needs) -> None:
    """Raise UserError for the first wrong combination. `needs`: the algorithm's."""
    for rules in (_of_run, _of_batches, _of_replay, _of_objective, _of_reference):
        for is_wrong, message in rules(config, needs):
            if is_wrong:
                raise UserError(message)
    _check_age(config, needs)


def accepts_missing_logprobs(config: RunConfig, needs: Needs) -> bool:
    """Whether the algorithm may train on responses without behaviour log-probs."""
    with_ratio = needs.behaviour and needs.max_lag is None
    accepts = with_ratio and config.train.missing_logprobs != "reject"
    return needs.off_policy or bool(accepts)


def _of_run(c: RunConfig, needs: Needs) -> Iterator[Fault]:
    task, engine, e = c.task, c.engine, c.eval
    yield (
        task.evaluation_only and c.steps,
        f"task={task.name} with steps={c.steps}: it is for evaluation only "
        f"({task.evaluation_only}); use steps=0 eval.split=test",
    )
    yield (
        max(task.turns, c.eval_turns) > 1 and task.environment,
        f"task.turns={task.turns} eval.turns={e.turns} with task.environment={task.environment}: "
        "feedback is what a program gave on the statement's tests; use one turn",
    )
    yield (
        engine.device != "auto" and (engine.name == "hf" or c.runtime.name != "sync"),
        f"engine.device={engine.device} with engine={engine.name} runtime={c.runtime.name}: only "
        "engine=vllm under runtime=sync has a GPU of its own; use engine.device=auto",
    )
    yield (
        engine.colocate and engine.device != "auto",
        f"engine.colocate=true with engine.device={engine.device}: vLLM can sleep only on the "
        "learner's GPU; use engine.device=auto or engine.colocate=false",
    )
    yield (
        not any(k <= e.samples for k in e.k),
        f"eval.k={e.k}: at least one k must be at most eval.samples={e.samples}",
    )
    # names of metrics and files show six digits
    shown = [f"{abs(t):g}" for t in (e.temperature, *e.further_temperatures)]
    yield (
        len(set(shown)) < len(shown) or not all(map(isfinite, e.further_temperatures)),
        f"eval.further_temperatures={e.further_temperatures}: each must be finite, listed once, "
        f"and other than eval.temperature={e.temperature:g}",
    )
    yield (
        c.train.keep_best and e.split != "tune",
        f"train.keep_best=true with eval.split={e.split}: scores on the split that selects the "
        "weights are biased; use eval.split=tune, and evaluate checkpoints/best afterwards",
    )
    yield (
        e.final and e.split != "test",
        f"eval.final=true with eval.split={e.split}: a final evaluation is on the test split; "
        "leave eval.final at false, which a study sets",
    )


def _of_batches(c: RunConfig, needs: Needs) -> Iterator[Fault]:
    t = c.train
    yield (
        t.lag and t.sync_every > 1,
        f"train.lag={t.lag} with train.sync_every={t.sync_every}: both set the age of the rollout "
        "policy; use train.sync_every=1 or train.lag=0",
    )
    yield (
        t.minibatches > t.prompts,
        f"train.minibatches={t.minibatches} of train.prompts={t.prompts}: each optimiser step "
        "needs at least one prompt; use at most train.prompts",
    )
    yield (
        t.prompts % t.minibatches,
        f"train.minibatches={t.minibatches} does not divide train.prompts={t.prompts}: optimiser "
        f"steps of one batch would differ in size; use {gcd(t.prompts, t.minibatches)}, or "
        f"train.prompts={t.prompts // t.minibatches * t.minibatches}",
    )
    least = max(needs.groups, 2 if t.resample_zero_variance else 1)
    yield (
        t.group_size < least,
        f"train.group_size={t.group_size} under algo={c.algo.name}"
        f"{' with train.resample_zero_variance=true' * t.resample_zero_variance}: the responses to "
        f"a prompt are compared with each other; use at least {least}",
    )
    for key in ("offline_share", "replay_share", "reset_share"):
        share = getattr(t, key)
        count = round(t.group_size * share)
        yield (
            abs(count - t.group_size * share) > 1e-9,
            f"train.{key}={share} of train.group_size={t.group_size} is not a whole number of "
            f"responses; try {count / t.group_size:g}",
        )
    both = f"train.offline_share={t.offline_share} and train.replay_share={t.replay_share}"
    yield t.offline_share + t.replay_share > 1, f"{both} add up to more than 1; lower one"
    yield (
        t.curriculum != "none" and t.offline_share + t.replay_share == 1,
        f"train.curriculum={t.curriculum} with {both}: no response is fresh, so no pass rate is "
        "known; use train.curriculum=none, or a lower share",
    )
    resets = f"train.reset_share={t.reset_share}"
    yield (
        t.offline_share + t.replay_share + t.reset_share > 1,
        f"{resets} with {both}: only fresh responses can begin with a prefix; lower one",
    )
    yield (
        t.reset_share and (needs.critic not in ("separate", "shared") or needs.groups > 1),
        f"{resets} under algo={c.algo.name}: what a response from a prefix is worth, only a critic "
        "says, and no group of them can be compared; use algo=ppo with its critic, or "
        "train.reset_share=0",
    )
    resampled, frozen = t.resample_zero_variance, c.replay.frozen
    yield (
        t.reset_share and (c.task.turns > 1 or t.curriculum != "none" or resampled or frozen),
        f"{resets} with task.turns={c.task.turns} train.curriculum={t.curriculum} "
        f"train.resample_zero_variance={str(resampled).lower()} "
        f"replay.frozen={str(frozen).lower()}: a response from a prefix has one answer, says "
        "nothing of the prompt's pass rate, and must be generated; use 1, none, false and false",
    )
    low, high = t.correction_bounds
    yield low > high, f"train.correction_low={low:g} is above train.correction_high={high:g}"


def _of_replay(c: RunConfig, needs: Needs) -> Iterator[Fault]:
    t, r = c.train, c.replay
    sources = [*r.from_runs, *r.files]
    yield (
        r.frozen and (len(r.from_runs) != 1 or r.files or t.replay_share or t.offline_share),
        "replay.frozen=true uses the unchanged batches of one run: set replay.from_runs=[FOLDER] "
        "with one folder, no replay.files, train.replay_share=0 and train.offline_share=0",
    )
    yield (
        r.frozen and (t.keeps_rollout_copy or t.resample_zero_variance or t.curriculum != "none"),
        "replay.frozen=true: nothing is generated, so use train.lag=0, train.sync_every=1, "
        "train.resample_zero_variance=false and train.curriculum=none",
    )
    yield (
        sources and not t.replay_share and not r.frozen,
        f"replay.from_runs={r.from_runs} replay.files={r.files} with train.replay_share=0: none of "
        "it would be used; set its share of each group, e.g. train.replay_share=0.5",
    )
    yield (
        t.replay_share and not r.own and not sources,
        f"train.replay_share={t.replay_share} with replay.own=false: there is nothing to replay; "
        "give replay.from_runs or replay.files, or replay.own=true",
    )
    # own samples come in the batch after theirs, which older weights may have generated
    youngest = (t.lag + 1) * t.minibatches * t.epochs
    yield (
        t.replay_share and not sources and r.max_age is not None and r.max_age < youngest,
        f"replay.max_age={r.max_age}: this run's responses are at least {youngest} optimiser "
        f"steps old when they are replayed (train.lag={t.lag}); set {youngest} or more",
    )
    for run in r.from_runs:
        yield (
            not any(Path(run).glob("samples/step-*.arrow")),
            f"replay.from_runs=[{run}]: no samples there; only runs with train.keep_samples=true "
            "record them",
        )
    for file in r.files:
        yield not Path(file).is_file(), f"replay.files=[{file}]: no such file"


def _of_objective(c: RunConfig, needs: Needs) -> Iterator[Fault]:
    t, reward, under = c.train, c.task.reward, f"under algo={c.algo.name}"
    yield (
        needs.critic == "none" and needs.critic_warmup,
        f"algo.critic=none with algo.critic_warmup={needs.critic_warmup}: these batches would "
        "train nothing; use algo.critic_warmup=0, or algo.critic=separate",
    )
    yield (
        c.task.environment is None and reward.needs_all_tests and c.judge.early_stop,
        f"task.reward.kind={reward.kind} with judge.early_stop=true: the share of passed tests "
        "needs all tests to run; use judge.early_stop=false",
    )
    yield (
        reward.overlong is not None and needs.best_reward == "success",
        f"task.reward.overlong={reward.overlong} {under}: it takes a response for accepted only "
        "at the best reward, so the penalty would turn long accepted responses into failures; use "
        "null, or an objective that reads the reward's size, such as grpo or spo",
    )
    yield (
        reward.shapes_batches
        and (needs.best_reward or needs.initial_value != "none" or needs.step_values),
        f"task.reward.dither={reward.dither} task.reward.conciseness={reward.conciseness} "
        f"{under}: it reads which responses have the best reward, or the rewards of further "
        "responses, which shaped rewards do not show; use 0.0, or an objective such as grpo",
    )
    yield (
        needs.initial_value != "none" and c.task.turns > 1 and c.task.feedback == "foreign",
        f"task.feedback=foreign {under}: a response of the reference would depend on the prompts "
        "that are generated with it; use task.feedback=tests or withheld (SPO: or "
        "algo.q0=group_soft)",
    )
    steps, frozen, unknown = needs.step_values, c.replay.frozen, t.missing_logprobs != "reject"
    yield (
        steps and (c.task.turns > 1 or frozen or (steps.cut == "unlikely" and unknown)),
        f"task.turns={c.task.turns} replay.frozen={str(frozen).lower()} "
        f"train.missing_logprobs={t.missing_logprobs} {under}: it continues responses from cuts, "
        "which needs task.turns=1, an engine that generates (replay.frozen=false) and, for cuts at "
        "unlikely tokens, rollout log-probs (train.missing_logprobs=reject)",
    )
    size = prod(steps.branches) if steps and steps.branches else t.group_size
    yield (
        size != t.group_size,
        f"train.group_size={t.group_size} {under}: its branches make {size} responses of each "
        f"prompt; use train.group_size={size}, or other algo.branches",
    )
    tree = steps if steps and steps.branches else None
    yield (
        tree and (t.replay_share or t.offline_share or t.truncation == "mask"),
        f"train.replay_share={t.replay_share} train.offline_share={t.offline_share} "
        f"train.truncation={t.truncation} {under}: a group is a whole tree; use 0, 0 and "
        "reward_as_is",
    )
    longest = c.task.max_response_tokens  # null: not resolved yet
    yield (
        tree and longest and tree.every * (len(tree.branches) - 1) >= longest,
        f"algo.segment={tree.every if tree else 0} with task.max_response_tokens={longest} "
        f"{under}: the last branches would begin behind the limit; use a shorter segment",
    )
    yield (
        "dpo" in needs.copies and not needs.copy_of,
        f"algo.dpo_model=null {under}: it rewards tokens by a DPO model; train one with algo=dpo, "
        "then give its weights: algo.dpo_model=RUN/checkpoints/final",
    )
    yield (
        t.correction != "none" and needs.behaviour != "ratio",
        f"train.correction={t.correction} {under}: it has no ratio to correct, or a correction of "
        "its own; use train.correction=none",
    )
    yield (
        t.offline_share and not accepts_missing_logprobs(c, needs),
        f"train.offline_share={t.offline_share} {under}: it is correct only for responses of its "
        "own policy, and offline programs have no log-probs; use 0, or an algorithm that learns "
        "from any source (`python -m algorithms` lists them); a loss with a ratio takes "
        "train.missing_logprobs=reference or recomputed",
    )


def _of_reference(c: RunConfig, needs: Needs) -> Iterator[Fault]:
    """A reference that moves must be read, and must not be expected to stay."""
    every = c.train.reference_every
    if every is None:
        return
    setting = f"train.reference_every={every} under algo={c.algo.name}"
    yield (
        not needs.reference,
        f"{setting}: the objective reads no reference (with a KL weight of 0, if it has one); use "
        "train.reference_every=null",
    )
    yield (
        needs.initial_value != "none",
        f"{setting}: its initial values come from responses of the initial model; use "
        "train.reference_every=null, or SPO's algo.q0=group_soft",
    )
    yield (
        "reference" in needs.copies,
        f"{setting}: it replaces the reference itself; use train.reference_every=null, or "
        "algo.reincarnate_at=null",
    )
    yield (
        c.train.missing_logprobs == "reference",
        f"{setting} with train.missing_logprobs=reference: programs without log-probs get the "
        "initial model's, which the reference leaves; use train.missing_logprobs=recomputed",
    )


def _check_age(c: RunConfig, needs: Needs) -> None:
    """Raise UserError if an algorithm without a ratio gets responses of too old weights."""
    t, r = c.train, c.replay
    # the largest age of a sample in optimiser steps, reached at the last step of a batch
    age = max(t.lag + 1, t.sync_every) * t.minibatches * t.epochs - 1
    neutral = {"lag": 0, "sync_every": 1, "minibatches": 1, "epochs": 1, "replay_share": 0.0}
    causes = [f"train.{k}={getattr(t, k)}" for k in neutral if getattr(t, k) != neutral[k]]
    if t.replay_share or r.frozen:
        last = c.steps * t.minibatches * t.epochs  # optimiser steps of the run
        oldest = last
        if r.from_runs or r.files:
            causes.append("responses of other policies")
        elif r.max_age is not None:
            oldest = min(last, r.max_age + t.minibatches * t.epochs - 1)
        age = max(age, oldest)
    if needs.max_lag is not None and age > needs.max_lag:
        more = f", or allow more with algo.max_lag={age}" if "max_lag" in vars(c.algo) else ""
        raise UserError(
            f"{' with '.join(causes)} under algo={c.algo.name}: without an importance ratio it "
            f"accepts a rollout policy at most {needs.max_lag} optimiser steps behind, and here "
            f"the lag is up to {age}; lower it{more}"
        )
