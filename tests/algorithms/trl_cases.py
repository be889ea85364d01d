"""A model, a batch and TRL's trainers over them, for the tests against TRL."""

import torch
import trl
from datasets import Dataset
from tokenizers import Tokenizer, models
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from experiments.learner.batching import Tokens
from experiments.learner.forward import score
from experiments.policy.policy import Policy

PROMPTS = [[4, 5, 6], [7, 8, 9, 10, 11]]
GROUP = 4
REWARDS = torch.tensor([1.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0, 1.0])
TERMS = 40  # response tokens of a batch, at most


def tiny_model():
    torch.manual_seed(0)
    sizes = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2}
    heads = {"num_attention_heads": 4, "num_key_value_heads": 2}
    return LlamaForCausalLM(LlamaConfig(vocab_size=50, **sizes, **heads, pad_token_id=0))


def tokenizer():
    vocabulary = {f"t{i}": i for i in range(50)}
    inner = Tokenizer(models.WordLevel(vocabulary, unk_token="t3"))
    return PreTrainedTokenizerFast(tokenizer_object=inner, pad_token="t0", eos_token="t1")


def tokens_of(lengths):
    """Two prompts with four responses each, of these lengths."""
    generator = torch.Generator().manual_seed(1)
    responses = [torch.randint(4, 50, (n,), generator=generator).tolist() for n in lengths]
    return Tokens.pack(PROMPTS, [0] * GROUP + [1] * GROUP, responses, 0, torch.device("cpu"))


def scored(model, tokens, noise=0.3):
    """The policy's output with gradient, and log-probs of an older policy and of a reference."""
    output = score(Policy(model), tokens, temperature=1.0)
    generator = torch.Generator().manual_seed(2)
    drift = noise * torch.randn(2, *tokens.mask.shape, generator=generator)
    old, ref = (output.logp.detach() + drift).masked_fill(~tokens.mask, 0.0)
    return output, old, ref


def trainer(model, folder, dataset, **options):
    """TRL's trainer of GRPO, with nothing switched on that its paper lacks."""
    arguments = {"output_dir": str(folder), "use_cpu": True, "bf16": False, "report_to": []}
    arguments |= {"gradient_checkpointing": False, **options}
    return trl.GRPOTrainer(
        model=model,
        args=trl.GRPOConfig(**arguments),
        train_dataset=Dataset.from_dict(dataset),
        processing_class=tokenizer(),
        reward_funcs=lambda completions, **_: [0.0] * len(completions),
    )


def padded(tokens):
    """The tokens under the names of TRL's inputs."""
    return {
        "prompt_ids": tokens.prompts[tokens.prompt_of],
        "prompt_mask": tokens.prompt_mask[tokens.prompt_of].long(),
        "completion_ids": tokens.responses,
        "completion_mask": tokens.mask.long(),
    }


def gradients(loss, model):
    """Gradients of every weight; the model has none left afterwards."""
    model.zero_grad()
    loss.backward()
    grads = [parameter.grad.clone() for parameter in model.parameters()]
    model.zero_grad()
    return grads


def same(ours, theirs, factor=1.0):
    """A weight's gradient is a sum over tokens, which the two may add in another order in float32.

    The rounding of such a sum is at most eps × terms × the greatest term, and terms may cancel: so
    the tolerance is relative to the model's greatest gradient, not to each weight's own.
    """
    expected = [factor * grad for grad in theirs]
    greatest = max(float(grad.abs().max()) for grad in expected)
    tolerance = torch.finfo(torch.float32).eps * TERMS * greatest
    for mine, other in zip(ours, expected, strict=True):
        torch.testing.assert_close(mine, other, rtol=1e-4, atol=tolerance)
