"""Adapters: off is the base, engines sample from what is scored, and checkpoints hold them."""

import copy

import pytest
import torch

from algorithms.ppo import PPO
from algorithms.spo import SPO
from experiments.engines.base import Request, Sampling
from experiments.engines.hf import HFEngine
from experiments.engines.weight_sync import WeightSync
from experiments.learner.forward import Tokens
from experiments.learner.learner import Learner
from experiments.policy import loading, lora
from experiments.policy.policy import Policy, copy_weights
from experiments.run_dir.ledger import Ledger
from tests.compose import model_config, options_of, train_config
from tests.experiments.learner.learning import GROUP, REWARDS, samples_from

SPO_GROUP = SPO(options_of("spo", learning_rate=1e-2), 1.0)
LORA = model_config(adapter="lora", adapter_rank=4)


def learner_of(model, algorithm=SPO_GROUP, seed=0, **options):
    policy = lora.adapted(Policy(model), LORA, seed)
    return Learner(policy, 0, algorithm, train_config(warmup_steps=0, **options), 10, Ledger())


def trained_for(base, steps, algorithm=SPO_GROUP):
    learner = learner_of(base, algorithm)
    for _ in range(steps):
        learner.update(samples_from(base, REWARDS), GROUP, None)
    return learner


def logits(model, ids=((2, 7, 9, 30, 4),)):
    with torch.no_grad():
        return model(torch.tensor(ids)).logits


def test_off_equals_the_base_exactly_before_and_after_training(tiny):
    before = copy.deepcopy(tiny)
    learner = trained_for(tiny, 2)
    assert learner.reference.model is tiny  # no second copy
    assert torch.equal(logits(tiny), logits(before))
    for own, kept in zip(tiny.parameters(), before.parameters(), strict=True):
        assert torch.equal(own, kept)
    assert not torch.equal(logits(learner.model), logits(before))
    shared = {parameter.data_ptr() for parameter in tiny.parameters()}
    held = {p.data_ptr() for n, p in learner.model.named_parameters() if ".lora_" not in n}
    assert held == shared


def test_it_begins_as_the_base_and_on_all_linear_layers_but_the_head(tiny):
    model = lora.adapted(Policy(tiny), LORA, seed=0).model
    assert torch.equal(logits(model), logits(tiny))
    names = {n.partition(".lora_")[0] for n, p in model.named_parameters() if p.requires_grad}
    linear = {n for n, m in tiny.named_modules() if isinstance(m, torch.nn.Linear)}
    assert names == linear - {"lm_head"}


def test_the_learning_rate_is_ten_times_that_of_full_training(tiny):
    metrics = learner_of(tiny).update(samples_from(tiny, REWARDS), GROUP, None)
    assert metrics["learning_rate"] == pytest.approx(10 * 1e-2)


def test_a_critic_is_a_second_adapter_and_a_head(tiny):
    learner = trained_for(tiny, 2, PPO(options_of("ppo", learning_rate=1e-2), 1.0))
    held = {p.data_ptr() for p in tiny.parameters()}
    own = [n for n, p in learner.modules.critic.named_parameters() if p.data_ptr() not in held]
    assert all(".lora_" in name or name.startswith("head.") for name in own)
    a = [
        dict(m.named_parameters())["model.layers.0.mlp.up_proj.lora_A.default.weight"]
        for m in (learner.model, learner.modules.critic.model)
    ]
    assert not torch.equal(*a)
    assert learner.modules.critic.head.weight.abs().max() > 0


def test_what_the_engine_writes_with_equals_what_the_learner_scores(tiny):
    learner = trained_for(tiny, 3)
    engine = HFEngine(loading.frozen_copy(Policy(tiny)), {1}, 0, 64)
    engine.sync(learner.policy)
    prompts = [[2, 7, 9, 30], [2, 5]]
    groups = engine.generate(Request(prompts, [range(8)] * 2, Sampling(12)))
    completions = [completion for group in groups for completion in group]
    rows = [0] * 8 + [1] * 8
    tokens = Tokens.pack(prompts, rows, [c.tokens for c in completions], 0, torch.device("cpu"))
    engine_logps = torch.tensor([logp for completion in completions for logp in completion.logps])
    scored = learner.logp(tokens)[tokens.mask]
    assert (engine_logps - scored).abs().max() < 1e-4
    unmoved = learner.ref_logp(tokens)[tokens.mask]
    assert (engine_logps - unmoved).abs().mean() > 100 * (engine_logps - scored).abs().mean()


def test_syncs_in_bfloat16_never_change_the_base(tiny):
    """Merged and unmerged in place, a sixth of the weights change in one cycle (trl#6688)."""
    base = tiny.to(torch.bfloat16)
    before = [p.clone() for p in base.parameters()]
    learner = trained_for(base, 2)
    engine = HFEngine(loading.frozen_copy(Policy(base)), {1}, 0, 64)
    first = None
    for _ in range(3):
        engine.sync(learner.policy)
        now = [p.clone() for p in engine.model.parameters()]
        first = first or now
        assert all(map(torch.equal, now, first))
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
    loading.save(learner.policy, Policy(tiny), state, tmp_path)
    assert {file.name for file in tmp_path.iterdir()} >= {"adapter_model.safetensors"}
    assert not (tmp_path / "model.safetensors").exists()
    again = lora.adapted(Policy(tiny), LORA, seed=5)
    lora.load(again, tmp_path)
    assert torch.equal(logits(again.model), logits(learner.model))
    theirs = PeftModel.from_pretrained(copy.deepcopy(tiny), tmp_path)
    assert torch.equal(logits(theirs), logits(learner.model))


def test_a_learner_goes_on_from_its_state_which_holds_no_base(tiny):
    learner, samples = trained_for(tiny, 2), samples_from(tiny, REWARDS)
    state = copy.deepcopy(learner.state_dict())
    assert all(".lora_" in name for name in state["modules"]["model"])
    learner.update(samples, GROUP, None)
    other = learner_of(tiny, seed=3)
    other.load_state_dict(state)
    other.update(samples, GROUP, None)
    assert torch.equal(logits(other.model), logits(learner.model))


def test_a_copy_for_a_stale_rollout_policy_is_of_the_adapter_alone(tiny):
    learner = trained_for(tiny, 1)
    held = loading.own_copy(learner.policy)
    then = logits(learner.model)
    learner.update(samples_from(tiny, REWARDS), GROUP, None)
    assert torch.equal(logits(held.model), then)
    shared = {p.data_ptr() for p in tiny.parameters()}
    assert all(
        (p.data_ptr() in shared) == (".lora_" not in n) for n, p in held.model.named_parameters()
    )
    copy_weights(learner.policy, into=held)
    assert torch.equal(logits(held.model), logits(learner.model))
    assert held.version == 2


@pytest.mark.parametrize("options", [{}, {"lag": 2}, {"sync_every": 2}], ids=str)
def test_weight_sync_resumes_from_its_state(tiny, options):
    samples = samples_from(tiny, REWARDS)

    def sync_of(learner):
        engine = HFEngine(loading.frozen_copy(Policy(tiny)), {1}, 0, 64)
        return WeightSync(engine, learner.policy, train_config(**options))

    def advance(learner, sync, steps):
        for step in steps:
            learner.update(samples, GROUP, None)
            sync.follow(step)
        return [p.clone() for p in sync.engine.model.parameters()], sync.engine.version

    learner = learner_of(tiny)
    sync = sync_of(learner)
    advance(learner, sync, range(1, 4))
    state = copy.deepcopy((learner.state_dict(), sync.state_dict()))
    kept = state[1]["weights"] or []
    assert sum(t.numel() for t in kept) <= sum(p.numel() for p in lora.trained(learner.model))
    weights, version = advance(learner, sync, range(4, 6))
    again = learner_of(tiny, seed=9)
    other = sync_of(again)
    again.load_state_dict(state[0])
    other.load_state_dict(state[1])
    assert other.engine.version == other.version
    found, found_version = advance(again, other, range(4, 6))
    assert (
        found_version
        == version
        == learner.policy.version - options.get("lag", 0) - (1 if options.get("sync_every") else 0)
    )
    assert all(map(torch.equal, found, weights))
