"""`make bench which=step`: cost of an optimiser step of each algorithm, and of whole GRPO steps.

Every algorithm steps on the same sampled responses, in turn, in one process on one thread. Ratios
to the raw forward and backward pass of the same rows are taken within a round.

Whole steps of GRPO follow, from prompts to new weights: ours and, where it is installed (extra
`peer`), TRL's in turn. Both begin with the same weights and prompts, write as many responses of the
same length at most, and take their rewards from a judge of their own in the same sandbox. The floor
is the raw pass over our responses: no response is written or judged, no weight changes. A model
that is not bundled takes whole steps alone: seven learners at once need too much memory.
"""

from __future__ import annotations

import copy
import tempfile
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from importlib.util import find_spec
from typing import Any

import torch

from envs.problem import Environment, Submission
from experiments.benchmarks import common
from experiments.benchmarks.common import MiniContests, ModelOptions, Values, padded, start_timer
from experiments.config.composition import config_of
from experiments.engines.base import Sampling
from experiments.engines.hf import HFEngine
from experiments.errors import command
from experiments.rollout.generate import Responder
from experiments.runtime.judges import open_environments
from experiments.sample import Origin, PromptedProblem, Sample, compute_reward

OURS, TRL, FLOOR = (f"whole GRPO step, {whose}" for whose in ("ours", "TRL's", "raw pass alone"))


def main(options: ModelOptions) -> None:
    """Measure and print."""
    torch.set_num_threads(1)
    mini = MiniContests.load(common.model_config(options.model, options.dtype))
    title = f"Steps: {options.model}, {mini.size} tokens, one thread"
    if len(mini.prompts) > 4:  # the bundled models
        common.report(title, measure_steps(options.rounds, mini), "s", "raw")
    common.report(title, measure_whole_steps(options.rounds, mini), "s", OURS)


def measure_steps(rounds: int, mini: MiniContests) -> Values:
    """One optimiser step of each algorithm and of the raw pass, in turn."""
    policy, pad, size = mini.engine.policy, mini.engine.pad, mini.size
    given = mini.engine, mini.prompts, size.responses, Sampling(size.max_tokens)
    samples = common.rewarded(mini.prompted, common.generate_responses(*given))
    steps: dict[str, Any] = {
        name: partial(common.learner_of(algorithm, policy, pad).update, initial_values=None)
        for name, algorithm in common.algorithms().items()
    }
    steps["raw"] = partial(raw_pass, copy.deepcopy(policy.model))

    def time_step(name: str, number: int) -> dict[str, float]:
        seconds = start_timer()
        steps[name](samples, size.responses)
        return seconds()

    return common.alternate({name: partial(time_step, name) for name in steps}, rounds)


def raw_pass(model: Any, samples: Sequence[Sample], group_size: int, micro_batch: int = 64) -> None:
    """The least of any trainer: forward and backward of the mean log-prob, in padded batches.

    Prompts are padded on the left, responses on the right. Logits are at response positions only.
    """
    model.zero_grad(set_to_none=True)
    for start in range(0, len(samples), micro_batch):
        part = samples[start : start + micro_batch]
        prompts = padded([sample.prompt.tokens for sample in part], "left")
        tokens = padded([sample.tokens for sample in part], "right")
        ids = torch.cat([prompts, tokens], 1).to(model.device)
        mask, ids = (ids >= 0).long(), ids.clamp(min=0)
        places = {"attention_mask": mask, "position_ids": (mask.cumsum(-1) - 1).clamp(min=0)}
        logits = model(input_ids=ids, **places, logits_to_keep=tokens.shape[1] + 1).logits
        logps = logits[:, :-1].float().log_softmax(-1)
        mask, ids = mask[:, prompts.shape[1] :], ids[:, prompts.shape[1] :]
        means = (logps.gather(-1, ids[..., None])[..., 0] * mask).sum(-1) / mask.sum(-1)
        (-means.sum() / len(samples)).backward()


# Whole steps


def our_steps(mini: MiniContests, judge: Environment) -> Callable[[int], list[Sample]]:
    """Return a function that trains a copy of the model on new responses, which it returns.

    Its number seeds their tokens.
    """
    size, algorithm = mini.size, common.algorithms()["GRPO"]
    learner = common.learner_of(algorithm, mini.engine.policy, mini.engine.pad)
    engine = HFEngine(learner.policy, mini.ends, mini.engine.pad, 4096)
    responder = Responder(engine, judge, mini.tokenizer, mini.task.reward, False)

    def step(number: int) -> list[Sample]:
        seeds = common.seeds_of(size.prompts, size.responses, number)
        origin, sampling = Origin("policy", "bench", number), Sampling(size.max_tokens)
        _, samples = responder.respond(mini.prompted, seeds, sampling, origin)
        learner.update(samples, size.responses, None)
        return samples

    return step


def measure_whole_steps(rounds: int, mini: MiniContests) -> Values:
    """Whole steps of ours, of TRL and the floor, in turn; the first round warms up."""
    values: Values = {OURS: [], FLOOR: []}
    default = config_of([])
    default.task = mini.task
    with open_environments(default) as environments:
        ours = our_steps(mini, environments.make())
        floor = partial(raw_pass, copy.deepcopy(mini.engine.model))

        def take(number: int) -> None:
            seconds = start_timer()
            samples = ours(number)
            values[OURS].append(seconds())
            seconds = start_timer()
            floor(samples, mini.size.responses)
            values[FLOOR].append(seconds())

        if find_spec("trl"):
            values[TRL] = list(trl_steps(rounds + 1, mini, environments.make(), take))
        else:
            print("TRL is not installed: ours alone; pip install -e '.[peer]'")
            for number in range(rounds + 1):
                take(number)
    return {name: found[1:] for name, found in values.items()}


def trl_steps(
    rounds: int, mini: MiniContests, judge: Environment, take: Callable[[int], None]
) -> Iterator[dict[str, float]]:
    """Take ours before each of TRL's steps; yield the seconds of TRL's."""
    import transformers

    found: list[dict[str, float]] = []

    class Turns(transformers.TrainerCallback):
        def on_step_begin(self, *_: Any, **__: Any) -> None:
            take(len(found))
            self.timer = start_timer()

        def on_step_end(self, *_: Any, **__: Any) -> None:
            found.append(self.timer())

    with tempfile.TemporaryDirectory() as folder:
        trainer = trl_trainer(folder, mini, judge, mini.prompted * rounds)
        trainer.add_callback(Turns())
        trainer.train()
    yield from found


def trl_trainer(
    folder: str, mini: MiniContests, judge: Environment, prompted: Sequence[PromptedProblem]
) -> Any:
    """TRL's GRPO trainer with our defaults and rewards, which takes a batch of prompts a step."""
    import datasets
    import trl

    texts = [mini.tokenizer.decode(list(prompt.tokens)) for prompt in prompted]

    def rewards(
        completions: list[str], completion_ids: list[list[int]], problem: list[int], **_: Any
    ) -> list[float | None]:
        problems = [prompted[number].problem for number in problem]
        judgements = judge.judge(list(map(Submission, problems, completions)))
        pairs = zip(judgements, completion_ids, strict=True)
        return [compute_reward(each, mini.task.reward, len(ids)) for each, ids in pairs]

    defaults: Any = common.algorithms()["GRPO"].config
    model = copy.deepcopy(mini.engine.model)
    config = trl.GRPOConfig(
        output_dir=folder,
        per_device_train_batch_size=mini.size.prompts * mini.size.responses,
        num_generations=mini.size.responses,
        max_completion_length=mini.size.max_tokens,
        max_steps=len(prompted) // mini.size.prompts,
        learning_rate=common.LEARNING_RATE,
        lr_scheduler_type="constant",
        beta=defaults.kl_coef,
        epsilon=defaults.clip_low,
        loss_type="grpo",
        shuffle_dataset=False,
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


if __name__ == "__main__":
    command(ModelOptions, main)
