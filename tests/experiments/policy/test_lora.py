"""Adapters: off is the base, engines sample from what is scored, and checkpoints hold them."""

import copy

import pytest
import torch

import algorithms
from experiments.engines.base import Request, Sampling
from experiments.engines.hf import HFEngine
from experiments.engines.weight_sync import WeightSync
from experiments.learner.batching import Tokens
from experiments.learner.learner import Learner
from experiments.policy import loading, lora
from experiments.policy.policy import Policy, copy_weights, frozen_copy
from experiments.run_dir.ledger import Ledger
from tests.compose import model_config, train_config
from tests.experiments.learner.learning import GROUP, REWARDS, samples_from

LORA = model_config(adapter="lora", adapter_rank=4)


def learner_of(model, name="spo", seed=0, **options):
    made = algorithms.make(
        name, learning_rate=1e-2, **{"q0": "group", "loss": "squared"} if name == "spo" else {}
    )
    policy = lora.adapted(Policy(model), LORA, seed)
    return Learner(policy, 0, made, train_config(warmup_steps=0, **options), 10, Ledger())


def trained_for(base, steps, name="spo"):
    learner = learner_of(base, name)
    for _ in range(steps):
        learner.update(samples_from(base, REWARDS), GROUP, None)
    return learner


def logits(model, ids=((2, 7, 9, 30, 4),)):
    with torch.no_grad():
        return model(torch.tensor(ids)).logits


def test_off_equals_the_base_exactly_before_and_after_training(tiny):
    before = copy.deepcopy(tiny)
    assert torch.equal(logits(lora.adapted(Policy(tiny), LORA, 0).model), logits(tiny))
    learner = trained_for(tiny, 2)
    assert learner.reference.model is tiny  # no second copy
    assert all(map(torch.equal, tiny.parameters(), before.parameters()))
    assert not torch.equal(logits(learner.model), logits(before))
    shared = {parameter.data_ptr() for parameter in tiny.parameters()}
    held = {p.data_ptr() for n, p in learner.model.named_parameters() if ".lora_" not in n}
    assert held == shared
    names = {n.partition(".lora_") for n, _ in learner.model.named_parameters() if ".lora_" in n}
    linear = {n for n, m in tiny.named_modules() if isinstance(m, torch.nn.Linear)}
    assert {name for name, *_ in names} == linear - {"lm_head"}


def test_the_learning_rate_is_ten_times_that_of_full_training(tiny):
    metrics = learner_of(tiny).update(samples_from(tiny, REWARDS), GROUP, None)
    assert metrics["learning_rate"] == pytest.approx(10 * 1e-2)


def test_a_critic_is_a_second_adapter_and_a_head(tiny):
    learner = trained_for(tiny, 2, "ppo")
    held = {p.data_ptr() for p in tiny.parameters()}
    own = [n for n, p in learner.modules.critic.named_parameters() if p.data_ptr() not in held]
    assert all(".lora_" in name or name.startswith("head.") for name in own)
    name = "model.layers.0.mlp.up_proj.lora_A.default.weight"
    models = (learner.model, learner.modules.critic.model)
    assert not torch.equal(*(dict(m.named_parameters())[name] for m in models))


def test_the_engine_generates_with_what_the_learner_scores(tiny):
    learner = trained_for(tiny, 3)
    engine = HFEngine(frozen_copy(Policy(tiny)), {1}, 0, 64)
    engine.sync(learner.policy)
    prompts = [[2, 7, 9, 30], [2, 5]]
    groups = engine.generate(Request(prompts, [range(8)] * 2, Sampling(12)))
    completions = [completion for group in groups for completion in group]
    rows, responses = [0] * 8 + [1] * 8, [c.tokens for c in completions]
    tokens = Tokens.pack(prompts, rows, responses, 0, torch.device("cpu"))
    engine_logps = torch.tensor([logp for completion in completions for logp in completion.logps])
    off = (engine_logps - learner.logp(tokens)[tokens.mask]).abs()
    unmoved = (engine_logps - learner.ref_logp(tokens)[tokens.mask]).abs()
    assert off.max() < 1e-4 and unmoved.mean() > 100 * off.mean()


def test_syncs_in_bfloat16_never_change_the_base(tiny):
    """Merged and unmerged in place, a sixth of the weights change in one cycle (trl#6688)."""
    base = tiny.to(torch.bfloat16)
    before = [p.clone() for p in base.parameters()]
    learner = trained_for(base, 2)
    engine = HFEngine(frozen_copy(Policy(base)), {1}, 0, 64)
    synced = []
    for _ in range(3):
        engine.sync(learner.policy)
        synced.append([p.clone() for p in engine.model.parameters()])
    assert all(map(torch.equal, synced[0], synced[2]))
    assert all(map(torch.equal, base.parameters(), before))
    layer = learner.model.model.layers[0].mlp.up_proj
    a, b = (m["default"].weight.float() for m in (layer.lora_A, layer.lora_B))
    exact = layer.base_layer.weight.float() + LORA.adapter_alpha / 4 * (b @ a)
    held = dict(learner.policy.named_weights())["model.layers.0.mlp.up_proj.weight"]
    assert torch.equal(held, exact.to(torch.bfloat16))


def test_a_checkpoint_holds_the_adapter_and_peft_reads_it(tiny, tmp_path):
    from peft import PeftModel

    learner = trained_for(tiny, 2)
    state = lora.trained_state(learner.model)
    lora.save(learner.policy, Policy(tiny), state, tmp_path)
    assert not (tmp_path / "model.safetensors").exists()
    again = lora.adapted(Policy(tiny), LORA, seed=5)
    lora.load(again, tmp_path)
    theirs = PeftModel.from_pretrained(copy.deepcopy(tiny), tmp_path)
    for model in (again.model, theirs):
        assert torch.equal(logits(model), logits(learner.model))


def test_a_copy_for_a_stale_rollout_policy_is_of_the_adapter_alone(tiny):
    learner = trained_for(tiny, 1)
    held, then = loading.own_copy(learner.policy), logits(learner.model)
    learner.update(samples_from(tiny, REWARDS), GROUP, None)
    assert torch.equal(logits(held.model), then)
    shared = {p.data_ptr() for p in tiny.parameters()}
    for name, parameter in held.model.named_parameters():
        assert (parameter.data_ptr() in shared) == (".lora_" not in name)
    copy_weights(learner.policy, into=held)
    assert torch.equal(logits(held.model), logits(learner.model))
    assert held.version == 2


@pytest.mark.parametrize("options", [{}, {"lag": 2}, {"sync_every": 2}], ids=str)
def test_learner_and_weight_sync_resume_from_their_state(tiny, options):
    samples = samples_from(tiny, REWARDS)

    def begun(seed):
        learner = learner_of(tiny, seed=seed)
        engine = HFEngine(frozen_copy(Policy(tiny)), {1}, 0, 64)
        return learner, WeightSync(engine, learner.policy, train_config(**options))

    def advance(learner, sync, steps):
        for step in steps:
            learner.update(samples, GROUP, None)
            sync.follow(step)
        return [p.clone() for p in sync.engine.model.parameters()], sync.engine.version

    parts = begun(0)
    advance(*parts, range(1, 4))
    state = copy.deepcopy([part.state_dict() for part in parts])
    assert all(".lora_" in name for name in state[0]["modules"]["model"])  # no base
    weights, version = advance(*parts, range(4, 6))
    again = begun(9)
    for part, saved in zip(again, state, strict=True):
        part.load_state_dict(saved)
    found, found_version = advance(*again, range(4, 6))
    assert found_version == version
    assert all(map(torch.equal, found, weights))
