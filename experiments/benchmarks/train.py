"""`make bench-train`: cost of an optimiser step of each algorithm, and of whole GRPO steps.

Every algorithm steps on the same sampled responses, in turn, in one process on one thread. Ratios
to the raw forward and backward pass of the same rows are taken within a round. With TRL installed
(extra `peer`), whole steps of GRPO follow, ours and TRL's in turn, with a reward that costs
nothing. CPU time is that of this process.
"""

from __future__ import annotations

import contextlib
import copy
import os
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import torch
from pydantic import PositiveInt
from torch import nn

from algorithms.grpo import GRPOConfig
from envs.tasks import open_task
from envs.tasks.task_cli import task_config
from experiments.benchmarks import common
from experiments.benchmarks.common import Row, ratios, row
from experiments.benchmarks.workload import LEARNING_RATE, algorithms, padded, responses, step_of
from experiments.config.schema import ModelConfig, TrainConfig
from experiments.engines.hf import HFEngine
from experiments.policy import loading
from experiments.rollout.prompts import encode_prompts
from experiments.sample import Sample

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

GOALS = {"SPO": 0.75, "GRPO": 0.70, "PPO critic=separate": 1.35}  # prefix → CPU time to raw
TRL_RELEASE, TIMES_TRL = "1.16.0", 3.0
OURS, TRL = "GRPO step, ours, whole", "GRPO step, TRL, whole"


@dataclass
class Options(common.Options):
    rounds: PositiveInt = 9
    prompts: PositiveInt = 16
    group: PositiveInt = 8  # responses to each prompt


class Clock:
    """CPU and wall seconds by name, round after round."""

    def __init__(self) -> None:
        self.cpu: dict[str, list[float]] = defaultdict(list)
        self.wall: dict[str, list[float]] = defaultdict(list)

    @contextlib.contextmanager
    def timed(self, name: str) -> Iterator[None]:
        cpu, wall = time.process_time(), time.perf_counter()
        yield
        self.cpu[name].append(time.process_time() - cpu)
        self.wall[name].append(time.perf_counter() - wall)

    def rows(self, name: str) -> list[Row]:
        """CPU and wall time. The first round warms up and is not counted."""
        cpu, wall = self.cpu[name][1:], self.wall[name][1:]
        return [row(name, "CPU time", cpu, "s"), row(name, "wall time", wall, "s")]

    def ratio(self, name: str, baseline: str) -> list[float]:
        return ratios(self.cpu[name][1:], self.cpu[baseline][1:])


def main(options: Options) -> None:
    """Measure and write `train.json`."""
    torch.set_num_threads(1)
    base, tokenizer = loading.load(ModelConfig())
    eos = loading.end_tokens(base.model, tokenizer)
    engine = HFEngine(base, eos, tokenizer.pad_token_id, 4096)
    config = task_config(["task=mini"])
    max_tokens = config.max_response_tokens
    assert max_tokens
    task = open_task(config)
    encoded, _ = encode_prompts(task.train, task, tokenizer, config, {})
    prompts = [encoded[index].tokens for index in range(options.prompts)]
    rows = measure_steps(options, engine, prompts, max_tokens)
    if find_spec("trl") and version("trl") == TRL_RELEASE:
        rows += measure_whole(options, engine, tokenizer, prompts, max_tokens)
    else:
        print(f"TRL {TRL_RELEASE} is not installed: no whole steps; pip install -e '.[peer]'")
    size = f"{options.prompts} prompts × {options.group} responses"
    size += f" of at most {max_tokens} tokens"
    common.finish("train", rows, options.out, workload=size, threads=1)


def measure_steps(
    options: Options, engine: HFEngine, prompts: Sequence[Sequence[int]], max_tokens: int
) -> list[Row]:
    """One optimiser step of each algorithm and of the raw pass, in turn."""
    clock, policy, pad = Clock(), engine.policy, engine.pad
    samples = responses(engine, prompts, options.group, max_tokens)
    steps: dict[str, Callable[[Sequence[Sample], int], object]] = {
        name: step_of(algorithm, policy, pad) for name, algorithm in algorithms().items()
    }
    steps["raw"] = Raw(policy.model, pad)
    for _ in range(options.rounds + 1):
        for name, step in steps.items():
            with clock.timed(name):
                step(samples, options.group)
    rows = []
    for name in steps:
        rows += clock.rows(name)
        if name != "raw":
            goal = next((most for prefix, most in GOALS.items() if name.startswith(prefix)), None)
            rows.append(row(name, "CPU time to raw", clock.ratio(name, "raw"), at_most=goal))
    return rows


class Raw:
    """The least of any trainer: forward and backward of the mean log-prob, in padded batches.

    Prompts are padded on the left, responses on the right. Logits are at response positions only.
    """

    def __init__(self, model: nn.Module, pad: int) -> None:
        self.model, self.pad = copy.deepcopy(model), pad

    def __call__(self, samples: Sequence[Sample], group_size: int, micro_batch: int = 64) -> None:
        self.model.zero_grad(set_to_none=True)
        for start in range(0, len(samples), micro_batch):
            loss = -self._mean_logps(samples[start : start + micro_batch]).sum() / len(samples)
            loss.backward()

    def _mean_logps(self, samples: Sequence[Sample]) -> torch.Tensor:
        prompts, tokens = [s.prompt.tokens for s in samples], [s.tokens for s in samples]
        width, time = max(map(len, prompts)), max(map(len, tokens))
        ones = [[[1] * len(row) for row in rows] for rows in (prompts, tokens)]
        ids = torch.cat([padded(prompts, self.pad, "left"), padded(tokens, self.pad, "right")], 1)
        mask = torch.cat([padded(ones[0], 0, "left"), padded(ones[1], 0, "right")], 1)
        device = next(self.model.parameters()).device
        ids, mask = ids.to(device), mask.to(device)
        positions = (mask.cumsum(-1) - 1).clamp(min=0)
        logits = self.model(
            input_ids=ids, attention_mask=mask, position_ids=positions, logits_to_keep=time + 1
        ).logits[:, :-1]
        logps = (logits.float() / TrainConfig().temperature).log_softmax(-1)
        chosen = logps.gather(-1, ids[:, width:].unsqueeze(-1)).squeeze(-1)
        return (chosen * mask[:, width:]).sum(-1) / mask[:, width:].sum(-1)


def measure_whole(
    options: Options,
    engine: HFEngine,
    tokenizer: PreTrainedTokenizerBase,
    prompts: Sequence[Sequence[int]],
    max_tokens: int,
) -> list[Row]:
    """Steps of GRPO from prompts to weights, ours ahead of each of TRL's."""
    clock, seeds = Clock(), iter(range(10**6))
    step = step_of(algorithms()["GRPO"], engine.policy, engine.pad)
    sampler = HFEngine(step.learner.policy, set(engine.eos.tolist()), engine.pad, 4096)

    def ours() -> None:
        with clock.timed(OURS):
            samples = responses(sampler, prompts, options.group, max_tokens, next(seeds))
            step(samples, options.group)

    train_with_trl(
        model=engine.model,
        tokenizer=tokenizer,
        prompts=prompts,
        group_size=options.group,
        max_tokens=max_tokens,
        steps=options.rounds + 1,
        before=ours,
        timed=lambda: clock.timed(TRL),
    )
    times = row("GRPO step, TRL to ours", "CPU time", clock.ratio(TRL, OURS), at_least=TIMES_TRL)
    return [*clock.rows(OURS), *clock.rows(TRL), times]


def train_with_trl(
    *,
    model: nn.Module,
    tokenizer: PreTrainedTokenizerBase,
    prompts: Sequence[Sequence[int]],
    group_size: int,
    max_tokens: int,
    steps: int,
    before: Callable[[], None],
    timed: Callable[[], contextlib.AbstractContextManager[None]],
) -> None:
    """Train with TRL's GRPO trainer and our defaults; every step has all prompts.

    Each step runs inside `timed()`, after a call of `before()`.
    """
    import datasets
    import transformers
    import trl

    class Turns(transformers.TrainerCallback):
        def on_step_begin(self, *_: Any, **__: Any) -> None:
            before()
            self.open = contextlib.ExitStack()
            self.open.enter_context(timed())

        def on_step_end(self, *_: Any, **__: Any) -> None:
            self.open.close()

    texts = [tokenizer.decode(list(prompt)) for prompt in prompts]
    if any(list(tokenizer(t)["input_ids"]) != list(p) for t, p in zip(texts, prompts, strict=True)):
        raise RuntimeError("TRL reads other tokens than we do")
    defaults = GRPOConfig()
    os.environ["WANDB_DISABLED"] = "true"
    with tempfile.TemporaryDirectory() as folder:
        trl.GRPOTrainer(
            model=copy.deepcopy(model),
            reward_funcs=lambda completions, **_: [
                float(i % 4 == 0) for i in range(len(completions))
            ],
            args=trl.GRPOConfig(
                output_dir=folder,
                per_device_train_batch_size=len(prompts) * group_size,
                num_generations=group_size,
                max_completion_length=max_tokens,
                max_steps=steps,
                learning_rate=LEARNING_RATE,
                lr_scheduler_type="constant",
                beta=defaults.kl_coef,
                epsilon=defaults.clip_low,
                loss_type="grpo",
                temperature=1.0,
                top_k=0,
                bf16=False,
                gradient_checkpointing=False,
                use_cpu=model.device.type == "cpu",
                report_to=[],
                save_strategy="no",
                logging_strategy="no",
                disable_tqdm=True,
                seed=0,
            ),
            train_dataset=datasets.Dataset.from_dict({"prompt": texts * steps}),
            processing_class=tokenizer,
            callbacks=[Turns()],
        ).train()


if __name__ == "__main__":
    common.command(Options, main)
