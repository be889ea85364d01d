"""TRL's GRPO trainer beside ours: whole steps with generation, in turn, in one process."""

from __future__ import annotations

import contextlib
import copy
import os
import tempfile
from collections.abc import Callable, Sequence
from importlib.metadata import PackageNotFoundError, version

from torch import nn

from algorithms.grpo import GRPOConfig
from experiments.benchmarks.training.workload import RATE

RELEASE = "1.16.0"


def missing() -> str | None:
    """Why TRL cannot be measured here, if it cannot."""
    try:
        found = version("trl")
    except PackageNotFoundError:
        return f"no TRL here: pip install -e '.[peer]' (trl=={RELEASE})"
    return None if found == RELEASE else f"TRL {found} here, {RELEASE} is the one that was read"


def steps(
    model: nn.Module,
    tokenizer: object,
    prompts: Sequence[Sequence[int]],
    group_size: int,
    max_tokens: int,
    rounds: int,
    before: Callable[[], None],
    timed: Callable[[], contextlib.AbstractContextManager],
) -> None:
    """`rounds` steps of TRL's trainer, each inside `timed()`; `before()` runs ahead of each.

    The same prompts, every one in each step; our defaults of GRPO; a reward that costs nothing.
    """
    import datasets
    import transformers
    from trl import GRPOConfig as TheirConfig
    from trl import GRPOTrainer

    class Turns(transformers.TrainerCallback):
        def on_step_begin(self, *_: object, **__: object) -> None:
            before()
            self.open = contextlib.ExitStack()
            self.open.enter_context(timed())

        def on_step_end(self, *_: object, **__: object) -> None:
            self.open.close()

    texts = [tokenizer.decode(list(prompt)) for prompt in prompts]
    for text, prompt in zip(texts, prompts, strict=True):
        if list(tokenizer(text)["input_ids"]) != list(prompt):
            raise RuntimeError("TRL would not read the same tokens as we do")
    ours = GRPOConfig()
    os.environ["WANDB_DISABLED"] = "true"
    with tempfile.TemporaryDirectory() as folder:
        trainer = GRPOTrainer(
            model=copy.deepcopy(model),
            reward_funcs=lambda completions, **_: [
                float(i % 4 == 0) for i in range(len(completions))
            ],
            args=TheirConfig(
                output_dir=folder,
                per_device_train_batch_size=len(prompts) * group_size,
                num_generations=group_size,
                max_completion_length=max_tokens,
                max_steps=rounds,
                learning_rate=RATE,
                lr_scheduler_type="constant",
                beta=ours.kl_coef,
                epsilon=ours.clip_low,
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
            train_dataset=datasets.Dataset.from_dict({"prompt": texts * rounds}),
            processing_class=tokenizer,
            callbacks=[Turns()],
        )
        trainer.train()
