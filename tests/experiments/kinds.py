"""Small random models of every kind that takes an attention of ours."""

import torch
from transformers import AutoConfig, AutoModelForCausalLM

SIZES = {
    "vocab_size": 48,
    "hidden_size": 32,
    "intermediate_size": 40,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,  # keys and values are repeated for pairs of heads
    "pad_token_id": 0,
    "sliding_window": None,
}


def model_of(kind, **changes):
    torch.manual_seed(0)
    config = AutoConfig.for_model(kind, **SIZES | changes)
    model = AutoModelForCausalLM.from_config(config, attn_implementation="sdpa").eval()
    with torch.no_grad():  # initial weights are so small that attention is nearly uniform
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.2)
    return model
