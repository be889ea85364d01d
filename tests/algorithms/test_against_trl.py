"""Losses and gradients against TRL's trainers on the same tensors and the same model.

TRL is not a dependency: `pip install trl==1.16.0` into the environment to run this.
"""

import pytest
import torch

pytest.importorskip("trl", reason="TRL is not installed (pip install trl==1.16.0)")

import algorithms
from algorithms.base import Batch
from tests.algorithms.trl_cases import (
    GROUP,
    REWARDS,
    gradients,
    padded,
    same,
    scored,
    tiny_model,
    tokens_of,
    trainer,
)

# our name and options → TRL's
KL = {"kl_coef": 0.04}
GRPO = {
    "grpo": ("grpo", {"kl_coef": 0.0}, {"loss_type": "grpo"}),
    "grpo with a KL": ("grpo", KL, {"loss_type": "grpo", "beta": 0.04}),
    "grpo, token mean": ("grpo", KL | {"aggregate": "token_mean"}, {"loss_type": "bnpo"}),
    "dr_grpo": ("dr_grpo", {}, {"loss_type": "dr_grpo"}),
    "dr_grpo with a KL": ("dr_grpo", KL, {"loss_type": "dr_grpo", "beta": 0.04}),
    "dapo": ("dapo", {}, {"loss_type": "dapo", "epsilon_high": 0.28}),
    "cispo": ("cispo", {"cap": 1.1}, {"loss_type": "cispo", "epsilon_high": 1.1}),
    "gspo": (
        "gspo",
        {"clip_low": 0.03, "clip_high": 0.04},
        {
            "loss_type": "grpo",
            "importance_sampling_level": "sequence",
            "epsilon": 0.03,
            "epsilon_high": 0.04,
        },
    ),
}
LENGTHS = (3, 8, 1, 5, 6, 2, 4, 7)
PROMPT = {"prompt": ["t4 t5"] * GROUP}


def batch_of(tokens, rewards=REWARDS, group=GROUP, **fields):
    ones = torch.ones(len(rewards), dtype=torch.bool)
    return Batch(tokens.mask, rewards, ones, ones, group, **fields)


@pytest.mark.parametrize("case", GRPO)
def test_objectives_over_groups(case, tmp_path):
    name, options, trl_options = GRPO[case]
    model, tokens = tiny_model(), tokens_of(LENGTHS)
    output, old, ref = scored(model, tokens)
    algorithm = algorithms.make(name, **options)
    batch = algorithm.prepare(batch_of(tokens, behaviour_logp=old, ref_logp=ref))
    ours = algorithm.loss(output, batch)[0]
    our_gradient = gradients(ours, model)
    beta = trl_options.pop("beta", options.get("kl_coef", 0.0))
    other = trainer(
        model,
        tmp_path,
        PROMPT,
        max_completion_length=64,
        per_device_train_batch_size=GROUP,
        num_generations=GROUP,
        use_bias_correction_kl=False,  # the published form
        **{"epsilon": 0.2, **trl_options},
    )
    other.beta = beta  # set afterwards: at construction it would look for a reference by name
    other.current_gradient_accumulation_steps = 1
    loss = other._compute_loss(
        model,
        {
            **padded(tokens),
            "advantages": batch.advantages[:, 0],
            "old_per_token_logps": old,
            "ref_per_token_logps": ref,
            "num_items_in_batch": tokens.mask.sum(),
        },
    )
    torch.testing.assert_close(ours, loss, rtol=1e-5, atol=1e-6)
    same(our_gradient, gradients(loss, model))
