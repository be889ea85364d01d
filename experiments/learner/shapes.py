"""The sizes of a model that determine its memory: of a built model, or of config.json alone."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

# The architectures whose tensors `shape_of_json` lists, and what their config.json must have.
LLAMA, QWEN2, QWEN3 = "llama", "qwen2", "qwen3"
SIZES = (
    *("hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads"),
    *("num_key_value_heads", "vocab_size"),
)


@dataclass(frozen=True)
class Shape:
    """The sizes that determine a model's memory, in elements."""

    tensors: tuple[int, ...]  # the size of each parameter, tied ones once
    output: int  # the output embedding, if it is not tied to the input's; else 0
    width: int
    inner: int  # of the feed-forward block
    layers: int
    query: int  # heads × head width
    key: int  # heads of keys and values × head width
    heads: int
    normed_heads: bool  # queries and keys are normalised, as in Qwen3
    vocabulary: int
    linear: tuple[tuple[int, int], ...]  # (in, out) of every linear layer but the head
    slides: bool = False  # some layers attend to a window, so activations are not checkpointed

    @property
    def parameters(self) -> int:
        return sum(self.tensors)

    def adapter(self, rank: int) -> tuple[int, ...]:
        """Return the sizes of an adapter's tensors."""
        return tuple(rank * width for pair in self.linear for width in pair)


def shape_of(model_config: Any) -> Shape:
    """Return the shape of a causal model of this config; the model is built without memory."""
    import torch
    import transformers

    with torch.device("meta"):
        model = transformers.AutoModelForCausalLM.from_config(model_config)
    text = model_config.get_text_config()
    tied = {id(p) for p in model.get_input_embeddings().parameters()}
    output = [p.numel() for p in model.get_output_embeddings().parameters() if id(p) not in tied]
    head_width = getattr(text, "head_dim", None) or text.hidden_size // text.num_attention_heads
    key_heads = getattr(text, "num_key_value_heads", None) or text.num_attention_heads
    return Shape(
        tensors=tuple(parameter.numel() for parameter in model.parameters()),
        output=sum(output),
        width=text.hidden_size,
        inner=getattr(text, "intermediate_size", None) or 4 * text.hidden_size,
        layers=text.num_hidden_layers,
        query=text.num_attention_heads * head_width,
        key=key_heads * head_width,
        heads=text.num_attention_heads,
        normed_heads=any(name.endswith("q_norm") for name, _ in model.named_modules()),
        vocabulary=text.vocab_size,
        linear=tuple(
            (m.in_features, m.out_features) for m in model.modules() if _has_adapter(m, model)
        ),
        slides=_slides(text),
    )


def _slides(text: Any) -> bool:
    """Whether the cache of a text model of this config has layers of another kind than usual."""
    if kinds := getattr(text, "layer_types", None):
        return set(kinds) != {"full_attention"}
    windows = (getattr(text, name, None) for name in ("sliding_window", "attention_chunk_size"))
    return any(window is not None for window in windows)


def _has_adapter(module: Any, model: Any) -> bool:
    """Whether LoRA adapts the module: every linear layer but the head."""
    from torch import nn

    return isinstance(module, nn.Linear) and module is not model.get_output_embeddings()


def shape_of_json(values: Mapping[str, Any]) -> Shape | None:
    """Return what `shape_of` does, from the values of a config.json and without torch.

    None for other architectures than Llama's, Qwen2's and Qwen3's, for biases and sliding windows,
    which these rarely have, and if a size is missing.
    """
    kind = values.get("model_type")
    rare = any(map(values.get, ("attention_bias", "mlp_bias", "use_sliding_window")))
    if kind not in (LLAMA, QWEN2, QWEN3) or rare or not all(map(values.get, SIZES)):
        return None
    width, inner, layers, heads, key_heads, vocabulary = (int(values[name]) for name in SIZES)
    if not (head_width := values.get("head_dim")):
        if kind == QWEN3:  # it need not be the width's part
            return None
        head_width = width // heads
    query, key = heads * head_width, key_heads * head_width
    projections = ((width, query), (width, key), (width, key), (query, width))
    inner_layers = ((width, inner), (width, inner), (inner, width))
    layer: list[int] = []
    for position, (ins, outs) in enumerate((*projections, *inner_layers)):
        layer += [ins * outs, *([outs] if kind == QWEN2 and position < 3 else [])]
        if kind == QWEN3 and position == 3:  # after the attention's projections
            layer += [head_width, head_width]
    output = 0 if values.get("tie_word_embeddings") else vocabulary * width
    return Shape(
        tensors=(vocabulary * width, *[*layer, width, width] * layers, width)
        + ((output,) if output else ()),
        output=output,
        width=width,
        inner=inner,
        layers=layers,
        query=query,
        key=key,
        heads=heads,
        normed_heads=kind == QWEN3,
        vocabulary=vocabulary,
        linear=(*projections, *inner_layers) * layers,
    )
