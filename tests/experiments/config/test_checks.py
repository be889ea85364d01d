"""Combinations that would give a wrong or unfair number are refused with their keys."""

from pathlib import Path

import pytest

from experiments.config.composition import config_of
from experiments.errors import UserError

ROOT = Path(__file__).resolve().parents[3]
REFUSED = [  # the command line; what the message names besides
    ("algo=ppo algo.critic=none algo.critic_warmup=3", "algo.critic=separate"),
    ("algo=ppo algo.critic=none algo.critic_learning_rate=1e-3", "critic=separate"),
    ("algo=ppo train.offline_share=0.5", "train.missing_logprobs"),
    ("train.lag=2 train.sync_every=3", ""),
    ("algo=rloo train.lag=2", "algo.max_lag=2"),
    ("algo=rloo train.epochs=2", "algo.max_lag=1"),
    ("algo=rloo train.replay_share=0.5", "algo.max_lag=200"),
    ("train.reference_every=5 algo=spo algo.q0=monte_carlo", "algo.q0=group_soft"),
    ("train.reference_every=5 algo=astar_po", "train.reference_every=null"),
    ("train.reference_every=5 algo=grpo algo.kl_coef=0", "train.reference_every=null"),
    ("train.reference_every=5 algo=remix train.replay_share=0.5", "algo.reincarnate_at"),
    ("train.reference_every=5 algo=ppo train.missing_logprobs=reference", "recomputed"),
    ("train.minibatches=17", "train.prompts=16"),
    ("train.minibatches=5", "train.prompts=15"),
    ("algo=grpo train.group_size=1", "2"),
    ("train.correction=truncated", "algo=spo"),
    ("algo=ppo_ewma train.correction=truncated", "train.correction=none"),
    ("algo=ppo train.correction=masked train.correction_low=3", "train.correction_high=2"),
    ("train.replay_share=0.3", "0.25"),
    ("train.offline_share=0.5 train.replay_share=0.75", "more than 1"),
    ("train.curriculum=band algo=sft train.offline_share=1", "train.curriculum=none"),
    ("train.replay_share=0.5 replay.own=false", "replay.from_runs"),
    ("replay.from_runs=[/x]", "train.replay_share=0.5"),
    ("train.replay_share=0.5 replay.from_runs=[/x]", "train.keep_samples=true"),
    ("train.replay_share=0.5 replay.files=[/x]", "/x"),
    ("train.replay_share=0.5 train.lag=3 replay.max_age=3", "4 or more"),
    ("replay.frozen=true", "replay.from_runs=[FOLDER]"),
    (f"experiment=frozen replay.from_runs=[{ROOT}] train.lag=3", "train.lag=0"),
    ("eval.final=true", "eval.split=choose"),
    ("train.keep_best=true", "eval.split=tune"),
    ("eval.samples=3 eval.k=[5]", ""),
    ("eval.further_temperatures=[0.4]", "eval.temperature=0.4"),
    ("algo=sft task.reward.overlong=[48,64]", "null"),
    ("algo=sft task.reward.dither=0.1 train.offline_share=1", "0.0"),
    ("algo=vineppo task.reward.dither=0.1", "0.0"),
    ("algo=vineppo task.turns=2", "task.turns=1"),
    ("algo=segment_chain train.missing_logprobs=recomputed", "train.missing_logprobs=reject"),
    ("task.reward.kind=fraction", "judge.early_stop=false"),
    ("algo=spo algo.q0=online task.turns=2 task.feedback=foreign", "task.feedback=tests"),
    ("task=sums task.turns=2", "task.environment"),
    ("task=livecodebench", "steps=0"),
    ("engine=vllm engine.device=cuda:1", "engine.colocate=false"),
    ("engine.device=cuda:1", "engine.device=auto"),
]


@pytest.mark.parametrize(("given", "more"), REFUSED, ids=[given for given, _ in REFUSED])
def test_it_is_refused_in_one_line(given, more):
    with pytest.raises(UserError) as refused:
        config_of(given.split())
    line = str(refused.value)
    assert "\n" not in line and more in line, line
    keys = [word.partition("=")[0].rpartition(".")[2] for word in given.split()]
    assert any(key in line for key in keys), line
