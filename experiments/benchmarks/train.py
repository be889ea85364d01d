"""`make bench-train`: cost of an optimiser step of each algorithm, and of whole GRPO steps.

Every algorithm steps on the same sampled responses, in turn, in one process on one thread. Ratios
to the raw forward and backward pass of the same rows are taken within a round. With TRL installed
(extra `peer`), whole steps of GRPO follow, ours and TRL's in turn, with a reward that costs
nothing. CPU time is that of this process.
"""

from __future__ import annotations

import copy
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from importlib.metadata import version
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from pydantic import PositiveInt

from algorithms.grpo import GRPOConfig
from experiments.benchmarks import common
from experiments.benchmarks.common import Row, Values, alternate, compare, start_timer
from experiments.benchmarks.workload import (
    LEARNING_RATE,
    MiniContests,
    algorithms,
    padded,
    responses,
    step_of,
)
from experiments.config.schema import ModelConfig, TrainConfig

if TYPE_CHECKING:
    import torch
    from torch import nn

    from experiments.sample import Sample

RELATIVE = "CPU time relative to raw"
GOALS = {"SPO": "≤ 0.75", "GRPO": "≤ 0.7", "PPO critic=separate": "≤ 1.35"}  # by prefix
TRL_RELEASE, TIMES_TRL = "1.16.0", "≥ 3"
Step = Callable[[Sequence["Sample"], int], object]
OURS, TRL = "whole GRPO step, ours", "whole GRPO step, TRL's"


@dataclass
class Options(common.Options):
    rounds: PositiveInt = 9
    prompts: PositiveInt = 16  # of a batch
    group: PositiveInt = 8  # responses to each prompt


def main(options: Options) -> None:
    """Measure and write `train.json`."""
    import torch

    torch.set_num_threads(1)
    mini = MiniContests.load(ModelConfig(), options.prompts)
    max_tokens = mini.task.max_response_tokens
    assert max_tokens
    rows = measure_steps(options, mini, max_tokens)
    if find_spec("trl") and version("trl") == TRL_RELEASE:
        rows += measure_whole(options, mini, max_tokens)
    else:
        print(f"TRL {TRL_RELEASE} is not installed: no whole steps; pip install -e '.[peer]'")
    size = f"{options.prompts} prompts × {options.group} responses of at most {max_tokens} tokens"
    common.finish("train", rows, options.out, workload=size, threads=1)


def measure_steps(options: Options, mini: MiniContests, max_tokens: int) -> list[Row]:
    """One optimiser step of each algorithm and of the raw pass, in turn."""
    policy, pad, steps = mini.engine.policy, mini.engine.pad, dict[str, Step]()
    samples = responses(mini.engine, mini.prompts, options.group, max_tokens)
    for name, algorithm in algorithms().items():
        steps[name] = step_of(algorithm, policy, pad)
    steps["raw"] = Raw(policy.model)

    def time_step(step: Step, number: int) -> dict[str, float]:
        seconds = start_timer()
        step(samples, options.group)
        return seconds()

    cases = {name: partial(time_step, step) for name, step in steps.items()}
    values = alternate(cases, options.rounds)
    goals = {
        (name, RELATIVE): goal
        for name in steps
        for prefix, goal in GOALS.items()
        if name.startswith(prefix)
    }
    return compare(values, "s", "raw", goals)


class Raw:
    """The least of any trainer: forward and backward of the mean log-prob, in padded batches.

    Prompts are padded on the left, responses on the right. Logits are at response positions only.
    """

    def __init__(self, model: nn.Module) -> None:
        self.model = copy.deepcopy(model)

    def __call__(self, samples: Sequence[Sample], group_size: int, micro_batch: int = 64) -> None:
        self.model.zero_grad(set_to_none=True)
        for start in range(0, len(samples), micro_batch):
            loss = -self._mean_logps(samples[start : start + micro_batch]).sum() / len(samples)
            loss.backward()

    def _mean_logps(self, samples: Sequence[Sample]) -> torch.Tensor:
        import torch

        prompts, tokens = [s.prompt.tokens for s in samples], [s.tokens for s in samples]
        width, time = max(map(len, prompts)), max(map(len, tokens))
        device = next(self.model.parameters()).device
        ids = torch.cat([padded(prompts, "left"), padded(tokens, "right")], 1).to(device)
        mask, ids = (ids >= 0).long(), ids.clamp(min=0)
        positions = (mask.cumsum(-1) - 1).clamp(min=0)
        logits = self.model(
            input_ids=ids, attention_mask=mask, position_ids=positions, logits_to_keep=time + 1
        ).logits[:, :-1]
        logps = (logits.float() / TrainConfig().temperature).log_softmax(-1)
        chosen = logps.gather(-1, ids[:, width:].unsqueeze(-1)).squeeze(-1)
        return (chosen * mask[:, width:]).sum(-1) / mask[:, width:].sum(-1)


def measure_whole(options: Options, mini: MiniContests, max_tokens: int) -> list[Row]:
    """Steps of GRPO from prompts to weights, ours ahead of each of TRL's."""
    import transformers

    from experiments.engines.hf import HFEngine

    engine, values = mini.engine, Values({OURS: [], TRL: []})
    step = step_of(algorithms()["GRPO"], engine.policy, engine.pad)
    sampler = HFEngine(step.learner.policy, set(engine.eos.tolist()), engine.pad, 4096)

    class Turns(transformers.TrainerCallback):
        def on_step_begin(self, *_: Any, **__: Any) -> None:
            seconds, seed = start_timer(), len(values[OURS])
            samples = responses(sampler, mini.prompts, options.group, max_tokens, seed)
            step(samples, options.group)
            values[OURS].append(seconds())
            self.seconds = start_timer()

        def on_step_end(self, *_: Any, **__: Any) -> None:
            values[TRL].append(self.seconds())

    with tempfile.TemporaryDirectory() as folder:
        trainer = trl_trainer(folder, mini, options.group, max_tokens, options.rounds + 1)
        trainer.add_callback(Turns())
        trainer.train()
    values = {name: rounds[1:] for name, rounds in values.items()}  # the first warms up
    return compare(values, "s", OURS, {(TRL, f"CPU time relative to {OURS}"): TIMES_TRL})


def trl_trainer(
    folder: str, mini: MiniContests, group_size: int, max_tokens: int, steps: int
) -> Any:
    """TRL's GRPO trainer with our defaults; every step has all prompts. Output goes to `folder`."""
    import datasets
    import trl

    texts = [mini.tokenizer.decode(list(prompt)) for prompt in mini.prompts]
    if [tuple(mini.tokenizer(text)["input_ids"]) for text in texts] != mini.prompts:
        raise RuntimeError("TRL reads other tokens than we do")
    defaults, model = GRPOConfig(), copy.deepcopy(mini.engine.model)
    config = trl.GRPOConfig(
        output_dir=folder,
        per_device_train_batch_size=len(texts) * group_size,
        num_generations=group_size,
        max_completion_length=max_tokens,
        max_steps=steps,
        learning_rate=LEARNING_RATE,
        lr_scheduler_type="constant",
        beta=defaults.kl_coef,
        epsilon=defaults.clip_low,
        loss_type="grpo",
        bf16=False,
        gradient_checkpointing=False,
        use_cpu=model.device.type == "cpu",
        save_strategy="no",
        logging_strategy="no",
        disable_tqdm=True,
    )
    return trl.GRPOTrainer(
        model=model,
        reward_funcs=lambda completions, **_: [float(i % 4 == 0) for i in range(len(completions))],
        args=config,
        train_dataset=datasets.Dataset.from_dict({"prompt": texts * steps}),
        processing_class=mini.tokenizer,
    )


if __name__ == "__main__":
    common.command(Options, main)
