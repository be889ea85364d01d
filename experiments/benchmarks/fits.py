"""What fits which GPU, computed from shapes alone: `python -m experiments.benchmarks.fits`.

The shapes stand here, so that nothing is fetched. Prompts of up to 2048 and responses of up to 1024
tokens, bfloat16, one response in a micro-batch, vLLM asleep while the learner works; the reference
is kept, for the loss or for `eval/kl_ref`.
"""

from __future__ import annotations

from dataclasses import replace

from algorithms.base import Needs
from algorithms.spo import SPOConfig
from analysis.report.markdown import table
from envs.tasks.config import TaskConfig
from experiments.config.schema import (
    EngineConfig,
    ModelConfig,
    RunConfig,
    RuntimeConfig,
    TrainConfig,
)
from experiments.learner.memory import Shape, estimate, shape_of

SIZES = {  # width, layers, inner, heads, key heads, vocabulary, tied
    "0.5 B": (896, 24, 4864, 14, 2, 151936, True),  # Qwen2.5-Coder-0.5B
    "1.5 B": (1536, 28, 8960, 12, 2, 151936, True),  # Qwen2.5-Coder-1.5B
    "7 B": (3584, 28, 18944, 28, 4, 152064, False),  # Qwen2.5-Coder-7B
    "8 B": (4096, 32, 14336, 32, 8, 128256, False),  # Llama-3.1-8B
}
PPO_NEEDS = Needs(reference=True, critic="separate", critic_apart=True)
ROWS = {  # what is trained, and what beside it
    "SPO or GRPO, whole": (Needs(reference=True), "none", 1),
    "PPO, a critic of its own, whole": (PPO_NEEDS, "none", 1),
    "SPO or GRPO, adapter": (Needs(reference=True), "lora", 1),
    "SPO or GRPO, adapter, μ every 10": (Needs(reference=True), "lora", 10),
    "PPO, a critic of its own, adapter": (PPO_NEEDS, "lora", 1),
    "PPO, adapter, μ every 10": (PPO_NEEDS, "lora", 10),
}
GPUS = (24, 48, 80)  # GB
PAPER = {  # the paper's recipes on whole models, μ every 10; the two of SPO need as much
    "SPO, `q0=monte_carlo`": Needs(reference=True, initial_value="monte_carlo"),
    "GRPO": Needs(reference=True),
    "PPO, a critic of its own": PPO_NEEDS,
}
NODE = {  # how a node of eight GPUs is used → the runtime, the learner's ranks
    "`runtime=torchrun`, 8 ranks, `engine=hf`": ("torchrun", 8),
    "`runtime=ray`, 4 ranks, 4 engines": ("ray", 4),
    "`runtime=ray`, 6 ranks, 2 engines": ("ray", 6),
}


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
    config = replace(_config(adapter, sync_every), engine=EngineConfig(name="vllm", colocate=True))
    return estimate(of, config, needs, on_gpu=True).total / 1e9


def on_node_gb(of: Shape, needs: Needs, runtime: str, ranks: int) -> float:
    """GB on each of the learner's GPUs; our loop writes 16 responses at once under torchrun."""
    engine, placed = EngineConfig(name="hf", batch_size=16), RuntimeConfig(name=runtime)
    config = replace(_config("none", sync_every=10), engine=engine, runtime=placed)
    config.model.checkpoint_activations = True
    return estimate(of, config, needs, on_gpu=True, ranks=ranks).total / 1e9


def _config(adapter: str, sync_every: int) -> RunConfig:
    return RunConfig(
        SPOConfig(),
        TaskConfig(max_prompt_tokens=2048, max_response_tokens=1024),
        replace(ModelConfig(dtype="bfloat16"), adapter=adapter),
        train=TrainConfig(micro_batch=1, sync_every=sync_every),
    )


def sizes_table() -> str:
    """Markdown: GB for each row and size, and the smallest GPU that has them."""
    shapes = [shape(size) for size in SIZES]
    rows = [[name, *(_cell(needed_gb(of, *row)) for of in shapes)] for name, row in ROWS.items()]
    return table(["", *SIZES], rows)


def node_table() -> str:
    """Markdown: GB on each of a node's eight GPUs that the learner has, of the paper's model."""
    of = shape("8 B")
    rows = [
        [name, *(_cell(on_node_gb(of, needs, *how)) for how in NODE.values())]
        for name, needs in PAPER.items()
    ]
    return table(["8 B, whole, μ every 10, activations checkpointed", *NODE], rows)


def _cell(gb: float) -> str:
    fits = next((f"fits {gpu}" for gpu in GPUS if gb <= 0.95 * gpu), "none of them")
    return f"{gb:.0f} GB: {fits}"


if __name__ == "__main__":
    print(sizes_table(), node_table(), sep="\n\n")
