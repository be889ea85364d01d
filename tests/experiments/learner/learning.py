"""Algorithms, samples and learners that the tests of this folder share."""

import copy

import algorithms
from algorithms.grpo import GRPO
from algorithms.ppo import PPO
from algorithms.spo import SPO
from envs.problem import Judgement, Problem, Verdict
from experiments.engines.base import Request, Sampling
from experiments.engines.hf import HFEngine
from experiments.learner.learner import Learner
from experiments.policy.policy import Policy
from experiments.run_dir.ledger import Ledger
from experiments.sample import Origin, PromptedProblem, Sample
from tests.compose import options_of, train_config

ALGORITHMS = {
    "spo": SPO(options_of("spo", q0="group", loss="squared"), 1.0),
    "ppo-separate": PPO(options_of("ppo"), 1.0),
    "ppo-shared": PPO(options_of("ppo", critic="shared", entropy_coef=0.01), 1.0),
    "ppo-ewma": algorithms.make("ppo_ewma"),
    "prime": algorithms.make("prime"),
    "grpo": GRPO(options_of("grpo"), 1.0),
    "grpo-drop": GRPO(options_of("grpo", zero_variance="drop", aggregate="token_mean"), 1.0),
}
GROUP = 4


def samples_from(model, rewards, max_tokens=6):
    """Groups of fresh responses with the given rewards."""
    prompts = [[2, 7, 9, 30], [2, 5], [2, 11, 3, 8, 40, 12, 6]]
    engine = HFEngine(Policy(model), {1}, 0, 64)
    groups = engine.generate(Request(prompts, [range(GROUP)] * 3, Sampling(max_tokens)))
    samples = []
    for row, (prompt, group) in enumerate(zip(prompts, groups, strict=True)):
        prompted = PromptedProblem(Problem(f"p{row}", "", (), ()), tuple(prompt))
        for completion in group:
            reward = rewards[len(samples)]
            verdict = Verdict.ACCEPTED if reward else Verdict.WRONG_ANSWER
            judged = Judgement(verdict, 0, 1, 1, "")
            c = completion
            origin = Origin("policy", "run", 1, c.version)
            samples.append(Sample(prompted, c.tokens, c.logps, judged, reward, c.truncated, origin))
    return samples


REWARDS = [1.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0, 0.0, 0.0, 1.0, 1.0, 1.0]


def learner_of(model, algorithm, **options):
    """A learner over a copy of the model."""
    return learner_over(Policy(copy.deepcopy(model)), algorithm, **options)


def learner_over(policy, algorithm, **options):
    config = train_config(warmup_steps=0, **options)
    return Learner(policy, 0, algorithm, config, 10, Ledger())
