"""Whole GRPO steps of ours and of TRL's trainer, from the same weights, problems and rewards."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from importlib.metadata import version
from importlib.util import find_spec
from typing import Any

import algorithms
from algorithms.base import Algorithm
from envs.environment import Environment, Submission
from experiments.benchmarks import workload
from experiments.benchmarks.workload import MiniContests
from experiments.engines.base import Sampling
from experiments.sample import Origin, PromptedProblem, Sample, compute_reward

TRL_RELEASE = "1.16.0"


class OurSteps:
    """Whole steps of a copy of the model: write, judge, learn.

    They are a run's steps, but for judging, which begins when all responses are written.
    """

    def __init__(self, mini: MiniContests, judge: Environment, algorithm: Algorithm) -> None:
        from experiments.engines.hf import HFEngine
        from experiments.rollout.generate import Responder

        self.size = mini.size
        self.step = workload.step_of(algorithm, mini.engine.policy, mini.engine.pad)
        self.ledger = self.step.learner.ledger
        engine = HFEngine(self.step.learner.policy, mini.ends, mini.engine.pad, 4096)
        reward = mini.task.reward
        self.responder = Responder(engine, judge, mini.tokenizer, reward, False, self.ledger)

    def take(self, prompts: Sequence[PromptedProblem], number: int) -> list[Sample]:
        """Train on new responses to `prompts`, which are returned; `number` seeds their tokens."""
        seeds = workload.seeds_of(len(prompts), self.size.responses, number)
        origin, sampling = Origin("policy", "bench", number), Sampling(self.size.max_tokens)
        _, samples = self.responder.respond(prompts, seeds, sampling, origin)
        with self.ledger.phase("train"):
            self.step(samples, self.size.responses)
        return samples


def trl_is_installed() -> bool:
    """Whether the release that these benchmarks were written for is installed."""
    return bool(find_spec("trl")) and version("trl") == TRL_RELEASE


def reward_function(
    mini: MiniContests,
    prompted: Sequence[PromptedProblem],
    judge: Environment,
    seen: Callable[[list[list[int]], list[float | None]], object],
) -> Callable[..., list[float | None]]:
    """Our rewards as TRL asks for them: its column `problem` is an index into `prompted`.

    `seen` gets the tokens and rewards of each batch.
    """

    def rewards(
        completions: list[str], completion_ids: list[list[int]], problem: list[int], **_: Any
    ) -> list[float | None]:
        problems = [prompted[number].problem for number in problem]
        judgements = judge.judge(list(map(Submission, problems, completions)))
        pairs = zip(judgements, completion_ids, strict=True)
        paid = [compute_reward(each, mini.task.reward, len(ids)) for each, ids in pairs]
        seen(completion_ids, paid)
        return paid

    return rewards


def trl_trainer(
    folder: str,
    mini: MiniContests,
    rewards: Callable[..., Any],
    prompted: Sequence[PromptedProblem],
    rate: float = workload.LEARNING_RATE,
    seed: int = 0,
) -> Any:
    """TRL's GRPO trainer with our defaults, which takes `mini.size.prompts` prompts a step.

    Its output goes to `folder`.
    """
    import datasets
    import trl

    texts = [mini.tokenizer.decode(list(prompt.tokens)) for prompt in prompted]
    if any(
        tuple(mini.tokenizer(text)["input_ids"]) != prompt.tokens
        for text, prompt in zip(texts, prompted, strict=True)
    ):
        raise RuntimeError("TRL reads other tokens than we do")
    defaults, model = algorithms.make("grpo").config, copy.deepcopy(mini.engine.model)
    config = trl.GRPOConfig(
        output_dir=folder,
        per_device_train_batch_size=mini.size.prompts * mini.size.responses,
        num_generations=mini.size.responses,
        max_completion_length=mini.size.max_tokens,
        max_steps=len(prompted) // mini.size.prompts,
        learning_rate=rate,
        lr_scheduler_type="constant",
        beta=defaults.kl_coef,
        epsilon=defaults.clip_low,
        loss_type="grpo",
        shuffle_dataset=False,
        seed=seed,
        bf16=False,
        gradient_checkpointing=False,
        use_cpu=model.device.type == "cpu",
        save_strategy="no",
        logging_strategy="no",
        report_to=[],
        disable_tqdm=True,
    )
    data = datasets.Dataset.from_dict({"prompt": texts, "problem": list(range(len(texts)))})
    names = {"reward_funcs": rewards, "train_dataset": data, "processing_class": mini.tokenizer}
    return trl.GRPOTrainer(model=model, args=config, **names)
