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


WINDOW = 6  # tokens
MIXED = ["sliding_attention", "sliding_attention", "full_attention"]
SLIDING = {  # kind → its config's way to say that layers see WINDOW tokens
    "mistral": {"sliding_window": WINDOW},
    "phi3": {"sliding_window": WINDOW},
    "qwen2": {"sliding_window": WINDOW, "use_sliding_window": True, "max_window_layers": 1},
    "gemma3_text": {"sliding_window": WINDOW, "layer_types": MIXED, "head_dim": 8},
}


def plain_logp(model, prompt, response):
    """Return the response's log-probs by the model's own forward pass over the whole sequence."""
    logits = model(torch.tensor([[*prompt, *response]]), use_cache=False).logits[0]
    logp = logits[len(prompt) - 1 : -1].log_softmax(-1)
    return logp.gather(-1, torch.tensor(response).unsqueeze(-1)).squeeze(-1)
