"""The settings of the bundled models and their training, by size."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """All settings of a model and its training. The defaults make assets/nano."""

    seed: int = 0  # of weights and texts
    # whose problems and programs it learns from
    task: Literal["mini", "mini_long", "mini_feedback"] = "mini"
    steps: int = 2600  # of the optimiser
    batch_size: int = 16  # of a step
    learning_rate: float = 3e-3  # the highest, after the warm-up
    warmup: int = 60  # steps over which the learning rate rises
    weight_decay: float = 0.05  # of AdamW
    hidden_size: int = 128  # of the model
    intermediate_size: int = 384  # of each block's MLP
    layers: int = 3  # number of blocks
    heads: int = 4  # of attention in each block
    tokenizer: str = ""  # folder of a model whose tokenizer is taken; empty: train one
    tokenizer_texts: int = 8000  # pairs that a tokenizer is trained on
    saved_dtype: Literal["float32", "float16"] = "float32"  # of the weights in the file

    def __post_init__(self) -> None:
        if self.task == "mini_feedback" and not self.tokenizer:
            raise ValueError("task=mini_feedback: name a tokenizer=, such as assets/nano")


@dataclass(frozen=True, kw_only=True)
class Recipe5M(Recipe):
    """The defaults make assets/nano_5m. Its tokenizer is nano's, so their tokens compare."""

    task: Literal["mini", "mini_long", "mini_feedback"] = "mini_long"
    steps: int = 4000
    batch_size: int = 8
    learning_rate: float = 1.2e-3
    warmup: int = 150
    hidden_size: int = 320
    intermediate_size: int = 960
    layers: int = 4
    heads: int = 5
    tokenizer: str = "assets/nano"
    saved_dtype: Literal["float32", "float16"] = "float16"


@dataclass(frozen=True, kw_only=True)
class RecipeFeedback(Recipe):
    """The defaults make assets/nano_feedback, which learns from conversations."""

    task: Literal["mini", "mini_long", "mini_feedback"] = "mini_feedback"
    steps: int = 5200
    tokenizer: str = "assets/nano"


RECIPES = {"1m": Recipe, "5m": Recipe5M, "feedback": RecipeFeedback}
