"""Random models in the shapes of Qwen2.5 0.5B and 1.5B and of Llama 3.1 8B, and tiny ones."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import torch
from torch import nn

from experiments.benchmarks.rows import Row, row
from experiments.config.schema import EvalConfig, ModelConfig, RunConfig
from experiments.learner.memory_check import free_bytes
from experiments.policy import loading


class SkippedError(Exception):
    """Why a part cannot be run here."""


@dataclass(frozen=True)
class Size:
    """A model's widths, and the batch that it is measured on."""

    kind: str  # of transformers
    widths: dict[str, int | bool]
    prompts: int
    group: int
    width: int  # tokens of a prompt
    length: int  # of a response


QWEN = {"num_key_value_heads": 2, "tie_word_embeddings": True, "vocab_size": 151936}
SIZES = {
    "0.5B": Size(
        "qwen2",
        {"hidden_size": 896, "intermediate_size": 4864, "num_hidden_layers": 24}
        | {"num_attention_heads": 14, **QWEN},
        *(16, 8, 512, 256),
    ),
    "1.5B": Size(
        "qwen2",
        {"hidden_size": 1536, "intermediate_size": 8960, "num_hidden_layers": 28}
        | {"num_attention_heads": 12, **QWEN},
        *(16, 8, 512, 256),
    ),
    "8B": Size(
        "llama",
        {"hidden_size": 4096, "intermediate_size": 14336, "num_hidden_layers": 32}
        | {"num_attention_heads": 32, "num_key_value_heads": 8, "vocab_size": 128256},
        *(8, 8, 512, 256),
    ),
}
TINY = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2}
TINY |= {"num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 96}
SMALL = {
    "0.5B": Size("qwen2", TINY | {"tie_word_embeddings": True}, 2, 4, 8, 6),
    "1.5B": Size("qwen2", TINY | {"tie_word_embeddings": True}, 2, 4, 8, 6),
    "8B": Size("llama", TINY, 2, 4, 8, 6),
}


@dataclass
class Bench:
    """What every part is given."""

    size: Size
    device: torch.device
    folder: Path  # for what a part must put on disk
    rounds: int

    def model(self, dtype: torch.dtype = torch.bfloat16) -> nn.Module:
        """Random weights, always the same ones."""
        torch.manual_seed(0)
        return loading.random_model(self.model_config(), self.device, dtype)

    def model_config(self) -> object:
        import transformers

        ends = {"bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0}
        return transformers.AutoConfig.for_model(self.size.kind, **self.size.widths, **ends)

    def run_config(self, dtype: str = "bfloat16") -> RunConfig:
        """The configuration of a run of this size."""
        size = self.size
        config = RunConfig(None, model=ModelConfig(dtype=dtype), eval=EvalConfig(kl_samples=0))
        config.train.prompts, config.train.group_size = size.prompts, size.group
        config.task.max_prompt_tokens, config.task.max_response_tokens = size.width, size.length
        config.engine.batch_size = size.prompts * size.group
        return config

    def prompts(self) -> list[list[int]]:
        """Random ones, all of the same length."""
        vocabulary = self.size.widths["vocab_size"]
        shape = (self.size.prompts, self.size.width)
        drawn = torch.randint(3, vocabulary, shape, generator=torch.Generator().manual_seed(0))
        return drawn.tolist()

    def free(self) -> int:
        """Bytes of memory that the device still has."""
        return free_bytes(self.device)

    def wait(self) -> None:
        """Until the GPU is done with what it was given."""
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)


def peak_flops(device: torch.device) -> float | None:
    """Dense bfloat16 operations a second that the maker promises; None where not known here."""
    if device.type != "cuda":
        return None
    name = torch.cuda.get_device_name(device)
    known = {"H100": 989e12, "H200": 989e12, "A100": 312e12, "L40S": 362e12, "B200": 2250e12}
    return next((flops for part, flops in known.items() if part in name), None)


def once(case: str, measure: str, value: float, unit: str = "", **goal: float) -> Row:
    return row(case, measure, [value], unit, **goal)
