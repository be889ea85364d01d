"""What fits which GPU, computed from shapes alone: `python -m experiments.benchmarks.fits`.

The shapes stand here, so that nothing is fetched. Prompts of up to 2048 and responses of up to 1024
tokens, bfloat16, one response in a micro-batch, vLLM asleep while the learner works; the reference
is kept, for the loss or for `eval/kl_ref`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from algorithms.base import Needs
from envs.tasks.config import TaskConfig
from experiments.config import EngineConfig, ModelConfig, RunConfig, TrainConfig
from experiments.learner.memory import Shape, estimate, shape_of

SIZES = {  # width, layers, inner, heads, key heads, vocabulary, tied
    "0.5 B": (896, 24, 4864, 14, 2, 151936, True),  # Qwen2.5-Coder-0.5B
    "1.5 B": (1536, 28, 8960, 12, 2, 151936, True),  # Qwen2.5-Coder-1.5B
    "7 B": (3584, 28, 18944, 28, 4, 152064, False),  # Qwen2.5-Coder-7B
    "8 B": (4096, 32, 14336, 32, 8, 128256, False),  # Llama-3.1-8B
}
ROWS = {  # what is trained, and what beside it
    "SPO or GRPO, whole": (Needs(reference=True), "none", 1),
    "PPO, a critic of its own, whole": (Needs(reference=True, critic="separate"), "none", 1),
    "SPO or GRPO, adapter": (Needs(reference=True), "lora", 1),
    "SPO or GRPO, adapter, μ every 10": (Needs(reference=True), "lora", 10),
    "PPO, a critic of its own, adapter": (Needs(reference=True, critic="separate"), "lora", 1),
    "PPO, adapter, μ every 10": (Needs(reference=True, critic="separate"), "lora", 10),
}
GPUS = (24, 48, 80)  # GB


def shape(size: str) -> Shape:
    """The shape of one of SIZES."""
    import transformers

    width, layers, inner, heads, key_heads, vocabulary, tied = SIZES[size]
    config = transformers.LlamaConfig if size == "8 B" else transformers.Qwen2Config
    return shape_of(
        config(
            hidden_size=width,
            num_hidden_layers=layers,
            intermediate_size=inner,
            num_attention_heads=heads,
            num_key_value_heads=key_heads,
            vocab_size=vocabulary,
            tie_word_embeddings=tied,
        )
    )


def needed_gb(of: Shape, needs: Needs, adapter: str, sync_every: int) -> float:
    """GB of GPU memory; vLLM's weights sleep in the host's while the learner works."""
    config = RunConfig(
        None,
        TaskConfig(max_prompt_tokens=2048, max_response_tokens=1024),
        replace(ModelConfig(dtype="bfloat16"), adapter=adapter),
        EngineConfig(name="vllm", colocate=True),
        train=TrainConfig(micro_batch=1, sync_every=sync_every),
    )
    return estimate(of, config, needs, on_gpu=True).total / 1e9


def table() -> Iterator[str]:
    """Markdown: GB for each row and size, and the smallest GPU that has them."""
    yield "| | " + " | ".join(SIZES) + " |"
    yield "|---" * (len(SIZES) + 1) + "|"
    shapes = {size: shape(size) for size in SIZES}
    for name, row in ROWS.items():
        cells = [_cell(needed_gb(of, *row)) for of in shapes.values()]
        yield f"| {name} | {' | '.join(cells)} |"


def _cell(gb: float) -> str:
    fits = next((f"fits {gpu}" for gpu in GPUS if gb <= 0.95 * gpu), "none of them")
    return f"{gb:.0f} GB: {fits}"


if __name__ == "__main__":
    print("\n".join(table()))
