"""GRPO's loss and gradient against TRL's GRPOTrainer on the same tensors and the same model.

TRL is not a dependency: `pip install trl==1.16.0` into the environment to run this.
"""

import pytest
import torch

trl = pytest.importorskip("trl", reason="TRL is not installed (pip install trl==1.16.0)")

from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast  # noqa: E402

from algorithms.base import Batch  # noqa: E402
from algorithms.grpo import GRPO, GRPOConfig  # noqa: E402
from experiments.learner.scoring import Tokens, score  # noqa: E402

FORMS = {"grpo": "sequence_mean", "bnpo": "token_mean", "dr_grpo": "constant"}


def tiny_model():
    torch.manual_seed(0)
    sizes = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2}
    heads = {"num_attention_heads": 4, "num_key_value_heads": 2}
    return LlamaForCausalLM(LlamaConfig(vocab_size=50, **sizes, **heads, pad_token_id=0))


def tokenizer():
    from tokenizers import Tokenizer, models

    vocabulary = {f"t{i}": i for i in range(50)}
    inner = Tokenizer(models.WordLevel(vocabulary, unk_token="t3"))
    return PreTrainedTokenizerFast(tokenizer_object=inner, pad_token="t0", eos_token="t1")


def trainer(model, loss_type, folder):
    from datasets import Dataset

    arguments = trl.GRPOConfig(
        output_dir=str(folder),
        loss_type=loss_type,
        epsilon=0.2,
        max_completion_length=64,
        per_device_train_batch_size=4,
        num_generations=4,
        use_bias_correction_kl=False,  # the published form
        use_cpu=True,
        bf16=False,
        report_to=[],
        gradient_checkpointing=False,
    )
    return trl.GRPOTrainer(
        model=model,
        reward_funcs=lambda completions, **_: [0.0] * len(completions),
        args=arguments,
        train_dataset=Dataset.from_dict({"prompt": ["t4 t5"] * 4}),
        processing_class=tokenizer(),
    )


@pytest.mark.parametrize("loss_type", FORMS)
@pytest.mark.parametrize("beta", [0.0, 0.04])
def test_loss_and_gradient_equal_trls(loss_type, beta, tmp_path):
    generator = torch.Generator().manual_seed(1)
    prompts = [[4, 5, 6], [7, 8, 9, 10, 11]]
    responses = [
        torch.randint(4, 50, (int(n),), generator=generator).tolist()
        for n in torch.randint(1, 9, (8,), generator=generator)
    ]
    model = tiny_model()
    tokens = Tokens.pack(prompts, [0] * 4 + [1] * 4, responses, 0, torch.device("cpu"))
    output = score(model, tokens, temperature=1.0)
    noise = 0.3 * torch.randn(2, *tokens.mask.shape, generator=generator)
    old, ref = output.logp.detach() + noise
    rewards = torch.tensor([1.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0, 1.0])
    batch = Batch(
        mask=tokens.mask,
        rewards=rewards,
        keep=torch.ones(8, dtype=torch.bool),
        online=torch.ones(8, dtype=torch.bool),
        group_size=4,
        behaviour_logp=old,
        ref_logp=ref,
    )
    grpo = GRPO(GRPOConfig(aggregate=FORMS[loss_type], kl_coef=beta), reward_high=1.0)
    batch = grpo.prepare(batch)
    ours, _ = grpo.loss(output, batch)
    ours.backward()
    our_gradient = [p.grad.clone() for p in model.parameters()]
    model.zero_grad()

    theirs = trainer(model, loss_type, tmp_path)
    theirs.beta = beta  # set afterwards: at construction it would look for a reference by name
    theirs.current_gradient_accumulation_steps = 1
    loss = theirs._compute_loss(
        model,
        {
            "prompt_ids": tokens.prompts[tokens.prompt_of],
            "prompt_mask": tokens.prompt_mask[tokens.prompt_of].long(),
            "completion_ids": tokens.responses,
            "completion_mask": tokens.mask.long(),
            "advantages": batch.advantages[:, 0],
            "old_per_token_logps": old,
            "ref_per_token_logps": ref,
            "num_items_in_batch": tokens.mask.sum(),
        },
    )
    loss.backward()
    torch.testing.assert_close(ours, loss, rtol=1e-5, atol=1e-6)
    for mine, parameter in zip(our_gradient, model.parameters(), strict=True):
        torch.testing.assert_close(mine, parameter.grad, rtol=1e-4, atol=1e-6)
