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
        "GRPO",
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


def test_rloo_on_fresh_responses(tmp_path):
    """TRL's loss has a ratio, which is 1 here: its value is not −A log π, but its gradient is."""
    model, tokens = tiny_model(), tokens_of(LENGTHS)
    output, _, _ = scored(model, tokens)
    rloo = algorithms.make("rloo", kl_coef=0.0)
    batch = rloo.prepare(batch_of(tokens))
    ours = gradients(rloo.loss(output, batch)[0], model)
    sizes = {"per_device_train_batch_size": GROUP, "num_generations": GROUP}
    other = trainer("RLOO", model, tmp_path, PROMPT, beta=0.0, **sizes)
    others = REWARDS.view(-1, GROUP)
    loo = (others.sum(-1, keepdim=True) - others) / (GROUP - 1)
    inputs = {
        **padded(tokens),
        "advantages": (others - loo).flatten(),
        "old_logps": (output.logp.detach() * tokens.mask).sum(-1),
    }
    same(ours, gradients(other._compute_loss(model, inputs), model))


PAIRS = {"dpo": ("sigmoid", 0.1), "ipo": ("ipo", 0.1), "rso": ("hinge", 0.05)}
LENGTH = 5  # of all responses: TRL's IPO divides h by it, the paper does not


@pytest.mark.parametrize("name", PAIRS)
def test_objectives_over_pairs(name, tmp_path):
    kind, beta = PAIRS[name]
    model, tokens = tiny_model(), tokens_of([LENGTH] * 8)
    output, _, ref = scored(model, tokens)
    scale = LENGTH if name == "ipo" else 1  # (h/T − 1/2β)² T² = (h − 1/(2 β/T))²
    algorithm = algorithms.make(name, beta=beta / scale)
    logps = {"ref_logp": ref, "policy_logp": output.logp.detach()}
    rewards = torch.tensor([1.0, 0.0] * 4)
    ours = algorithm.loss(output, algorithm.prepare(batch_of(tokens, rewards, 2, **logps)))[0]
    our_gradient = gradients(ours, model)
    dataset = {"prompt": ["t4"], "chosen": ["t5"], "rejected": ["t6"]}
    other = trainer("DPO", model, tmp_path, dataset, loss_type=kind, beta=beta)
    other.precompute_ref_logps = True  # ref_chosen_logps and ref_rejected_logps
    order = torch.tensor([0, 2, 4, 6, 1, 3, 5, 7])  # the chosen, then the rejected
    inputs = {k: v[order] for k, v in padded(tokens).items()}
    sums = (ref * tokens.mask).sum(-1)[order]
    ids = torch.cat([inputs["prompt_ids"], inputs["completion_ids"]], 1)
    outside = torch.zeros_like(inputs["prompt_mask"])
    loss = other._compute_loss(
        model,
        {
            "input_ids": ids,
            "attention_mask": torch.cat([inputs["prompt_mask"], inputs["completion_mask"]], 1),
            "completion_mask": torch.cat([outside, inputs["completion_mask"]], 1),
            "ref_chosen_logps": sums[:4],
            "ref_rejected_logps": sums[4:],
        },
        return_outputs=False,
    )
    torch.testing.assert_close(ours, scale**2 * loss, rtol=1e-5, atol=1e-6)
    same(our_gradient, gradients(loss, model), scale**2)


def test_astar_po(tmp_path):
    from datasets import Dataset
    from trl.experimental.a2po import A2POConfig, A2POTrainer

    from algorithms.spo import soft_value
    from tests.algorithms.trl_cases import tokenizer

    model, tokens = tiny_model(), tokens_of(LENGTHS)
    output, _, ref = scored(model, tokens)
    astar = algorithms.make("astar_po", beta=0.05)
    value = soft_value(REWARDS.view(-1, GROUP), astar.config.value_beta).repeat_interleave(GROUP)
    batch = astar.prepare(batch_of(tokens, ref_logp=ref, q0=value))
    ours = astar.loss(output, batch)[0]
    our_gradient = gradients(ours, model)
    other = A2POTrainer(
        model=model,
        reward_funcs=lambda completions, **_: [0.0] * len(completions),
        args=A2POConfig(
            output_dir=str(tmp_path), beta2=0.05, use_cpu=True, bf16=False, report_to=[]
        ),
        train_dataset=Dataset.from_dict(PROMPT),
        processing_class=tokenizer(),
    )
    inputs = padded(tokens)
    loss = other.compute_loss(
        model,
        {
            "input_ids": torch.cat([inputs["prompt_ids"], inputs["completion_ids"]], 1),
            "attention_mask": torch.cat([inputs["prompt_mask"], inputs["completion_mask"]], 1),
            "logits_to_keep": tokens.mask.shape[1],
            "ref_logps": (ref * tokens.mask).sum(-1),
            "rewards": REWARDS,
            "v_star": value,
        },
    )
    torch.testing.assert_close(ours, loss, rtol=1e-5, atol=1e-6)
    same(our_gradient, gradients(loss, model))
