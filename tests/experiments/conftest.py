"""A random model too small to be slow, and the bundled one."""

import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM

from experiments.policy import loading
from tests.compose import model_config


@pytest.fixture(scope="session", autouse=True)
def one_thread():
    torch.set_num_threads(1)


@pytest.fixture
def tiny():
    """41 tokens; 0 pads, 1 ends. Sharp enough that greedy choices are clear."""
    torch.manual_seed(0)
    sizes = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2}
    heads = {"num_attention_heads": 4, "num_key_value_heads": 2}
    ends = {"pad_token_id": 0, "eos_token_id": 1, "bos_token_id": 2}
    model = LlamaForCausalLM(LlamaConfig(vocab_size=41, **sizes, **heads, **ends)).eval()
    with torch.no_grad():
        model.lm_head.weight.mul_(20)
    return model


@pytest.fixture(scope="session")
def nano():
    """(policy, tokenizer) of the bundled model; not to be trained in place."""
    return loading.load(model_config())
