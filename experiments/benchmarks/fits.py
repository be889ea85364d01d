"""The memory that runs on one GPU need, and the smallest GPU that has it, as a table in Markdown.

The table in docs/guide/gpus.md is this one. It is computed from models' sizes alone, by
the estimate that also refuses runs (experiments/learner/memory.py): `task=taco` with its defaults,
vLLM on the learner's GPU with its share of it, and what each row overrides. No model is read.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from pydantic import PositiveInt

from experiments.benchmarks import common
from experiments.config.composition import config_of
from experiments.config.resolve_defaults import TOKEN_LIMITS, resolve_defaults
from experiments.config.schema import RunConfig
from experiments.learner.memory import GIB
from experiments.learner.memory_advice import MemoryLimit, needs_of, with_value
from experiments.learner.shapes import SIZES, Shape, shape_of_json

# GB in a GPU's name → GiB that torch finds on one: of an A10, an L40S, an H100
CARDS = {24: 22.0, 48: 44.4, 80: 79.1}
SPARE = 0.05  # of a GPU, for CUDA's own memory and what allocations leave unused
QWEN2_5, QWEN3 = {"model_type": "qwen2"}, {"model_type": "qwen3", "head_dim": 128}
TIED = {"tie_word_embeddings": True}


def _sizes(*sizes: int) -> dict[str, int]:
    return dict(zip(SIZES, sizes, strict=True))


# The values of the models' config.json that determine their memory.
MODELS: dict[str, Mapping[str, Any]] = {
    "0.5 B": QWEN2_5 | TIED | _sizes(896, 4864, 24, 14, 2, 151936),
    "1.5 B": QWEN2_5 | TIED | _sizes(1536, 8960, 28, 12, 2, 151936),
    "1.7 B": QWEN3 | TIED | _sizes(2048, 6144, 28, 16, 8, 151936),
    "7 B": QWEN2_5 | _sizes(3584, 18944, 28, 28, 4, 152064),
    "8 B": {"model_type": "llama"} | _sizes(4096, 14336, 32, 32, 8, 128256),
}
LESS = {"model.checkpoint_activations": True, "engine.memory_share": 0.2}
LORA = {"model.adapter": "lora"}
RUNS: tuple[tuple[str, str, dict[str, Any]], ...] = (  # row, algorithm, overrides
    ("SPO or GRPO", "spo", {}),
    ("SPO or GRPO", "spo", LESS),
    ("SPO or GRPO", "spo", LORA),
    ("PPO", "ppo", {}),
    ("PPO", "ppo", {"train.micro_batch": 1, "engine.memory_share": 0.2}),
    ("PPO", "ppo", {"model.checkpoint_activations": True, "engine.memory_share": 0.15}),
    ("PPO", "ppo", {"algo.critic": "shared"}),
    ("PPO", "ppo", {"algo.critic": "shared"} | LESS),
    ("PPO", "ppo", LORA),
    ("PPO", "ppo", LORA | LESS),
)


@dataclass
class Options:
    """The command line."""

    prompt_tokens: PositiveInt = TOKEN_LIMITS["cuda"][0]  # of the longest prompts
    response_tokens: PositiveInt = TOKEN_LIMITS["cuda"][1]  # of the longest responses


def main(options: Options) -> None:
    """Print the table."""
    print(table(options))


def table(options: Options) -> str:
    """Return the table: a row for each of RUNS, a column for each of MODELS."""
    heading = ["smallest GPU in GB (GiB needed on it)", *MODELS]
    lines = [heading, ["---", *["---:"] * len(MODELS)], *_rows(options)]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


def _rows(options: Options) -> Iterator[list[str]]:
    composed = {algo: _composed(algo, options) for algo in dict.fromkeys(row[1] for row in RUNS)}
    shapes = [shape_of_json(values) for values in MODELS.values()]
    for name, algo, overrides in RUNS:
        config = composed[algo]
        for key, value in overrides.items():
            config = with_value(config, key, value)
        given = " ".join(f"{key}={str(value).lower()}" for key, value in overrides.items())
        label = f"{name}: `{given}`" if given else name
        yield [label, *(_cell(shape, config) for shape in shapes if shape)]


def _composed(algo: str, options: Options) -> RunConfig:
    """Return the configuration of a run on a GPU with vLLM, which need not be installed here."""
    config = config_of([f"algo={algo}", "task=taco", "engine.name=hf"])
    task = replace(
        config.task,
        max_prompt_tokens=options.prompt_tokens,
        max_response_tokens=options.response_tokens,
    )
    config = replace(config, task=task)
    return with_value(resolve_defaults(config, "cuda"), "engine.name", "vllm")


def _cell(shape: Shape, config: RunConfig) -> str:
    """Return the smallest of CARDS that fits with what the run needs on it, or on the largest."""
    needed = 0.0
    for name, gib in CARDS.items():
        free = int((1 - SPARE) * gib * GIB)
        limit = MemoryLimit(needs_of(config), free, on_gpu=True, card=int(gib * GIB))
        total = limit.estimate(shape, config).total
        needed = total / GIB
        if total <= free and limit.fits_vllm(shape, config):
            return f"{name} ({needed:.0f})"
    return f"none ({needed:.0f})"


if __name__ == "__main__":
    common.command(Options, main)
