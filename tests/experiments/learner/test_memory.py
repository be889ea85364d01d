"""The estimate against tensors that were really allocated and really saved for backward."""

import copy
import json

import pytest
import torch
from transformers import (
    LlamaConfig,
    LlamaForCausalLM,
    Qwen2Config,
    Qwen2ForCausalLM,
    Qwen3Config,
    Qwen3ForCausalLM,
)

import algorithms
from algorithms.grpo import GRPO, GRPOConfig
from algorithms.logprobs import LOGITS_PER_CHUNK, chosen_logp
from algorithms.ppo import PPO, PPOConfig
from algorithms.regressions import DRO, DROOptions
from algorithms.spo import SPO, SPOConfig
from envs.tasks.config import TaskConfig
from experiments.config.schema import (
    PREFETCHED_BATCHES,
    EvalConfig,
    ModelConfig,
    RunConfig,
    TrainConfig,
)
from experiments.engines.base import Sampling
from experiments.engines.sampling import draw
from experiments.learner import packed_attention
from experiments.learner.forward import Tokens, response_hidden
from experiments.learner.learner import Learner
from experiments.learner.memory import (
    ACTIVATIONS,
    DRAW_BYTES,
    GENERATION,
    LOSS_BLOCKS,
    estimate,
    saved_bytes,
)
from experiments.learner.shapes import shape_of, shape_of_json
from experiments.policy.activation_checkpointing import checkpoint_activations
from experiments.policy.lora import adapted
from experiments.policy.policy import Policy
from experiments.run_dir.ledger import Ledger
from tests.experiments.learner.learning import GROUP, REWARDS, samples_from

PAIRS = [("float32", True), ("bfloat16", False)]  # of precision, and whether the head is tied
ALGORITHMS = {
    "spo": SPO(SPOConfig(q0="group"), 1.0),
    "ppo-separate": PPO(PPOConfig(), 1.0),
    "ppo-shared": PPO(PPOConfig(critic="shared"), 1.0),
    "ppo-none": PPO(PPOConfig(critic="none"), 1.0),
    "ppo-ewma": algorithms.make("ppo_ewma", critic="shared"),
    "remix": algorithms.make("remix"),
    "grpo-bare": GRPO(GRPOConfig(kl_coef=0.0), 1.0),
}


def run_config(dtype="float32", **train):
    task = TaskConfig(max_prompt_tokens=100, max_response_tokens=60)
    measured = EvalConfig(kl_samples=0)
    return RunConfig(
        None, task, ModelConfig(dtype=dtype), train=TrainConfig(**train), eval=measured
    )


def size(tensors):
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors)


@pytest.mark.parametrize(
    ("name", "dtype", "tied"),
    [
        *[(name, *pair) for name in ALGORITHMS for pair in PAIRS],
        ("spo", "bfloat16", True),  # a small Qwen on a GPU
    ],
)
def test_what_is_held_is_what_a_learner_allocates_to_the_byte(tiny, name, tied, dtype):
    samples = samples_from(tiny, REWARDS)
    model_config = copy.deepcopy(tiny.config)
    model_config.tie_word_embeddings = tied
    model = LlamaForCausalLM(model_config).to(getattr(torch, dtype))
    learner = Learner(Policy(model), 0, ALGORITHMS[name], TrainConfig(), 10, Ledger())
    learner.update(samples, GROUP, None)
    trained = [p for group in learner.optimiser.param_groups for p in group["params"]]
    states = [t for state in learner.optimiser.state.values() for t in state.values()]
    copies = [copy for _, copy in learner.optimiser.copies]
    allocated = {
        "policy": size(model.parameters()),
        "gradients": size(p.grad for p in trained if p.grad is not None),
        "AdamW's moments": size(states),
    }
    if copies:
        allocated["float32 copies"] = size(copies)
    if learner.modules.average:
        held = [*learner.modules.average.policy.model.parameters(), *learner.modules.average.exact]
        once = {tensor.data_ptr(): tensor for tensor in held}.values()
        allocated["the weights' moving average"] = size(once)
    if learner.modules.past:
        held = learner.modules.past.state_dict().values()
        allocated["copies of earlier weights"] = sum(map(size, held))
    for key, module in {
        "reference": learner.reference and learner.reference.model,
        "critic": learner.modules.critic or learner.modules.value_head,
    }.items():
        if module is not None:
            allocated[key] = size(module.parameters())
    needs = ALGORITHMS[name].needs
    found = estimate(shape_of(model_config), run_config(dtype), needs, on_gpu=False)
    assert found.held == allocated
    stale = estimate(shape_of(model_config), run_config(dtype, sync_every=2), needs, on_gpu=False)
    assert stale.total == found.total + allocated["policy"]


@pytest.mark.parametrize("kl_samples", [0, 4])
@pytest.mark.parametrize("kind", ["none", "lora"])
def test_a_reference_that_moves_is_a_copy_beside_the_base_of_evaluations(tiny, kind, kl_samples):
    config = run_config(reference_every=1)
    config.eval.kl_samples = kl_samples
    config.model = ModelConfig(dtype="float32", adapter=kind, adapter_rank=3)
    policy = Policy(copy.deepcopy(tiny))
    policy = adapted(policy, config.model, 0) if kind == "lora" else policy
    algorithm, kept = ALGORITHMS["spo"], kl_samples > 0
    given = (policy, 0, algorithm, config.train, 10, Ledger())
    learner = Learner(*given, keep_reference=kept)
    held = estimate(shape_of(tiny.config), config, algorithm.needs, on_gpu=False).held
    assert held["copies of earlier weights"] == size(
        learner.modules.past.moving_reference.own_tensors()
    )
    assert (learner.reference is not None) == kept == ("reference" in held)
    if kept:
        shared = learner.reference.model is policy.adapter.base.model if kind == "lora" else False
        assert held["reference"] == (0 if shared else size(learner.reference.model.parameters()))


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("name", ["spo", "ppo-separate", "ppo-ewma", "remix"])
def test_what_an_adapters_learner_holds_is_foreseen_to_the_byte(tiny, name, dtype):
    samples = samples_from(tiny, REWARDS)
    base = tiny.to(getattr(torch, dtype))
    config = run_config(dtype)
    config.model = ModelConfig(dtype=dtype, adapter="lora", adapter_rank=3)
    learner = Learner(
        adapted(Policy(base), config.model, 0), 0, ALGORITHMS[name], TrainConfig(), 10, Ledger()
    )
    learner.update(samples, GROUP, None)
    own = [p for group in learner.optimiser.param_groups for p in group["params"]]
    states = [t for state in learner.optimiser.state.values() for t in state.values()]
    modules = [learner.model, learner.reference.model, *filter(None, [learner.modules.critic])]
    weights = {id(p): p for module in modules for p in module.parameters()}
    needs = ALGORITHMS[name].needs
    held = estimate(shape_of(tiny.config), config, needs, on_gpu=False).held
    if learner.modules.average:
        theirs = [
            *learner.modules.average.policy.model.parameters(),
            *learner.modules.average.exact,
        ]
        once = {p.data_ptr(): p for p in theirs if id(p) not in weights}.values()
        assert held["the weights' moving average"] == size(once)
    if learner.modules.past:
        theirs = learner.modules.past.state_dict().values()
        assert held["copies of earlier weights"] == sum(map(size, theirs))
    if learner.modules.value_head:
        weights |= {id(p): p for p in learner.modules.value_head.parameters()}
    assert held["policy"] + held.get("critic", 0) + held["reference"] == size(weights.values())
    assert held["reference"] == 0
    assert held["gradients"] == size(p.grad for p in own)
    assert held["AdamW's moments"] == size(states)
    assert held.get("float32 copies", 0) == size(copy for _, copy in learner.optimiser.copies)
    assert held["the engine's weights"] == size(base.parameters())


@pytest.fixture
def nothing_shared(monkeypatch):
    """What responses have in common is read once, of which an estimate knows nothing."""
    monkeypatch.setattr(
        packed_attention, "first_alike", lambda tokens: torch.arange(tokens.mask.numel())
    )


ARCHITECTURES = {
    "llama": (LlamaConfig, LlamaForCausalLM, 8),
    "llama-grouped": (LlamaConfig, LlamaForCausalLM, 2),
    "qwen2": (Qwen2Config, Qwen2ForCausalLM, 2),
    "qwen3": (Qwen3Config, Qwen3ForCausalLM, 4),
}


@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize("name", ARCHITECTURES)
def test_config_json_alone_gives_the_shape_of_the_model(name, tied):
    config_class, _, key_heads = ARCHITECTURES[name]
    widths = {"hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2}
    heads = {"num_attention_heads": 8, "num_key_value_heads": key_heads}
    model_config = config_class(vocab_size=50, **widths, **heads, tie_word_embeddings=tied)
    assert shape_of_json(json.loads(model_config.to_json_string())) == shape_of(model_config)


def test_of_a_sliding_window_config_json_alone_is_not_enough():
    sizes = {"hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2, "vocab_size": 50}
    heads = {"num_attention_heads": 8, "num_key_value_heads": 2}
    model_config = Qwen2Config(**sizes, **heads, use_sliding_window=True, max_window_layers=1)
    assert shape_of(model_config).slides
    assert shape_of_json(json.loads(model_config.to_json_string())) is None


@pytest.mark.parametrize(("dtype", "adapter"), [("float32", "none"), ("bfloat16", "lora")])
@pytest.mark.parametrize("name", ARCHITECTURES)
def test_what_autograd_saves_is_foreseen_within_3_percent(name, dtype, adapter, nothing_shared):
    config_class, model_class, key_heads = ARCHITECTURES[name]
    widths = {"hidden_size": 128, "intermediate_size": 384, "num_hidden_layers": 4}
    heads = {"num_attention_heads": 8, "num_key_value_heads": key_heads}
    model_config = config_class(vocab_size=64, **widths, **heads)
    model = model_class(model_config).to(getattr(torch, dtype)).eval()
    config = run_config(dtype)
    config.model = ModelConfig(dtype=dtype, adapter=adapter)
    policy = Policy(model)
    if adapter == "lora":
        policy = adapted(policy, config.model, 0)
    model = policy.model
    prompts = [[3] * 100] * 3 + [[3] * 90]  # one is padded: attention needs a mask
    tokens = Tokens.pack(
        prompts, [i // 4 for i in range(16)], [[4] * 60] * 16, 0, torch.device("cpu")
    )
    weights = {p.untyped_storage().data_ptr() for p in model.parameters()}
    saved = {}

    def keep(tensor):
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in weights:
            saved[storage.data_ptr()] = storage  # held, so that no address comes twice
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        response_hidden(policy, tokens)
    found = saved_bytes(shape_of(model_config), config, rows=16, prompts=4, time=60)
    assert found == pytest.approx(sum(s.nbytes() for s in saved.values()), rel=0.03)


def test_what_checkpointed_blocks_keep_is_foreseen(nothing_shared):
    """Their inputs; prompts' keys and values are in the cache, and one layer's rest comes later."""
    widths = {"hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 32}
    model_config = LlamaConfig(vocab_size=64, num_attention_heads=4, **widths)
    model = LlamaForCausalLM(model_config).eval()
    policy = Policy(model)
    checkpoint_activations(policy)
    config, shape = run_config(), shape_of(model_config)
    prompts, of = [[3] * 100] * 4, [i // 4 for i in range(16)]
    tokens = Tokens.pack(prompts, of, [[4] * 60] * 16, 0, torch.device("cpu"))
    saved = {}

    def keep(tensor):
        saved[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        response_hidden(policy, tokens)
    parts = {"rows": 16, "prompts": 4, "time": 60}
    layer = saved_bytes(shape, config, **parts) // shape.layers
    config.model.checkpoint_activations = True
    found = saved_bytes(shape, config, **parts)
    cached = shape.layers * 4 * 100 * 2 * shape.key * 4
    weights = {p.untyped_storage().data_ptr() for p in model.parameters()}
    inputs = sum(s.nbytes() for at, s in saved.items() if at not in weights)
    assert found - layer - cached == pytest.approx(inputs, rel=0.1)
    assert found < shape.layers * layer / 5


def peak_growth(work):
    """Bytes by which this process grew at most while it worked (Linux)."""
    with open("/proc/self/clear_refs", "w") as file:
        file.write("5")
    with open("/proc/self/statm") as file:
        before = int(file.read().split()[1]) * 4096
    work()
    with open("/proc/self/status") as file:
        (peak,) = (int(line.split()[1]) for line in file if line.startswith("VmHWM:"))
    return peak * 1024 - before


@pytest.mark.slow  # gigabytes of logits
def test_blocks_of_logits_are_foreseen():
    vocabulary, rows = 150_000, 64
    head = torch.nn.Linear(8, vocabulary, bias=False)
    hidden = torch.randn(rows, 8, requires_grad=True)
    chosen = torch.randint(0, vocabulary, (rows,))
    assert rows * vocabulary < LOGITS_PER_CHUNK
    grown = peak_growth(lambda: chosen_logp(hidden, head, chosen, 0.7)[0].sum().backward())
    assert grown / (4 * rows * vocabulary) == pytest.approx(LOSS_BLOCKS, rel=0.25)
    many = 5 * LOGITS_PER_CHUNK // vocabulary  # in chunks: no more, however many there are
    chosen, hidden = chosen.repeat(many)[:many], torch.randn(many, 8, requires_grad=True)
    grown = peak_growth(lambda: chosen_logp(hidden, head, chosen, 0.7)[0].sum().backward())
    assert grown < LOSS_BLOCKS * 4 * LOGITS_PER_CHUNK
    logits, uniforms = torch.randn(rows, vocabulary), torch.rand(rows)
    grown = peak_growth(lambda: draw(logits, torch.arange(rows), uniforms, Sampling(4, 0.4, 0.95)))
    assert 4 + grown / logits.numel() == pytest.approx(DRAW_BYTES, rel=0.25)


def test_what_grows_with_what(tiny):
    shape, needs = shape_of(tiny.config), ALGORITHMS["spo"].needs
    base = estimate(shape, run_config(), needs, on_gpu=False).phases
    small = estimate(shape, run_config(micro_batch=1), needs, on_gpu=False).phases
    assert base[ACTIVATIONS] > 20 * small[ACTIVATIONS]
    assert base[GENERATION] == small[GENERATION]
    tokens = 8 * (100 + 8 * 60)  # eight prompts with their groups are 64 rows
    budgets = [run_config(micro_tokens=count) for count in (1, tokens // 4, tokens, 10**6)]
    found = [estimate(shape, c, needs, on_gpu=False).phases[ACTIVATIONS] for c in budgets]
    assert found == sorted(found)
    assert found[0] == small[ACTIVATIONS]
    assert base[ACTIVATIONS] / 2 <= found[2] < 2 * base[ACTIVATIONS]
    assert (
        found[3] == estimate(shape, run_config(micro_batch=128), needs, False).phases[ACTIVATIONS]
    )
    narrow = run_config()
    narrow.engine.batch_size = 32
    assert estimate(shape, narrow, needs, on_gpu=False).phases[GENERATION] * 8 == base[GENERATION]
    on_gpu, on_cpu = (
        [
            estimate(shape, run_config(d), needs, gpu).phases[GENERATION]
            for d in ("bfloat16", "float32")
        ]
        for gpu in (True, False)
    )
    slots = run_config().engine.batch_size * (100 + 60)
    halves = slots * 2 * shape.key * 2 * shape.layers  # two of a float32's four bytes
    assert on_gpu[1] == on_cpu[1]
    assert on_cpu[0] - on_gpu[0] == halves  # shared keys are float32 on a processor
    few = run_config(prompts=2)
    few.task.choose_problems, few.algo = 1, SPOConfig(q0="monte_carlo", q0_samples=4)
    drawn = SPO(few.algo, 1.0).needs  # 2 × 4 reference responses, for many batches at once
    written = [estimate(shape, few, n, on_gpu=False).phases[GENERATION] for n in (needs, drawn)]
    assert written[1] == PREFETCHED_BATCHES * 2 * 4 / 20 * written[0]
    apart, together = (
        estimate(shape, run_config(), algorithm.needs, on_gpu=False).phases[ACTIVATIONS]
        for algorithm in (ALGORITHMS["ppo-separate"], DRO(DROOptions(), 1.0))
    )
    assert apart == base[ACTIVATIONS]
    assert 1.5 * base[ACTIVATIONS] < together < 2 * base[ACTIVATIONS]


def test_what_conversations_keep_between_two_answers_is_counted(tiny):
    """Keys and values of two parts of `engine.batch_size` conversations."""
    shape, needs = shape_of(tiny.config), ALGORITHMS["spo"].needs
    once, twice = run_config(), run_config()
    once.task.max_response_tokens = once.longest_response(2)
    twice.task.turns = 2
    found = [estimate(shape, c, needs, on_gpu=False).phases[GENERATION] for c in (once, twice)]
    slots = 2 * once.engine.batch_size * (100 + once.task.max_response_tokens)
    assert found[1] - found[0] == slots * 2 * shape.key * 4 * shape.layers


def test_turns_of_evaluations_are_not_trained_on(tiny):
    shape, needs = shape_of(tiny.config), ALGORITHMS["spo"].needs
    one, evaluated = run_config(), run_config()
    evaluated.eval.turns = 50
    found = [estimate(shape, c, needs, on_gpu=False) for c in (one, evaluated)]
    assert found[0].phases[ACTIVATIONS] == found[1].phases[ACTIVATIONS]
    assert found[0].phases[GENERATION] < found[1].phases[GENERATION]


@pytest.mark.parametrize("ranks", [0, 4])
def test_vllm_brings_its_own_weights_and_takes_its_share_of_a_gpu(ranks, tiny):
    config, card = run_config(), 10**9
    config.engine.name, config.engine.memory_share = "vllm", 0.3

    def found(card=card):
        needs = ALGORITHMS["spo"].needs
        return estimate(shape_of(tiny.config), config, needs, on_gpu=True, ranks=ranks, card=card)

    assert found(0).held["vLLM"] == shape_of(tiny.config).parameters * 4
    assert found().held["vLLM"] == 0.3 * card
    assert found().phases[GENERATION] == 0
    config.engine.colocate = True  # it sleeps in the host's memory while the learner works
    assert "vLLM" not in found().held
    assert found().phases[GENERATION] == 0.3 * card
    config.engine.colocate, config.engine.device = False, "cuda:0"  # the learner's, by its name
    assert found().held["vLLM"] == 0.3 * card
    config.engine.device = "cuda:1"  # it has a GPU of its own
    assert "vLLM" not in found().held
    assert found().phases[GENERATION] == 0


def test_engines_in_actors_take_nothing_of_the_learners_gpu(tiny):
    shape, needs, config = shape_of(tiny.config), ALGORITHMS["spo"].needs, run_config(lag=2)
    here = [estimate(shape, config, needs, on_gpu=True, ranks=ranks) for ranks in (0, 2)]
    config.runtime.name = "ray"
    apart = [estimate(shape, config, needs, on_gpu=True, ranks=ranks) for ranks in (0, 2)]
    assert all(found.phases[GENERATION] for found in here)
    assert not any(found.phases[GENERATION] for found in apart)
    copies = {"the engine's weights", "the rollout policy's copy"}
    assert (
        here[0].held == apart[0].held
    )  # one process keeps the rollout policy's weights where it learns
    assert here[1].held.keys() - apart[1].held.keys() == copies  # ranks keep them in the host
    assert estimate(shape, config, needs, on_gpu=False, ranks=2).held.keys() >= copies


def test_what_ranks_share_is_their_part(tiny):
    shape, needs = shape_of(tiny.config), ALGORITHMS["ppo-separate"].needs
    alone, shared = (
        estimate(shape, run_config("bfloat16"), needs, on_gpu=True, ranks=ranks) for ranks in (1, 4)
    )
    before_moved = [found.phases[ACTIVATIONS] for found in (alone, shared)]
    trained = alone.held["gradients"] // 4  # in float32
    assert before_moved[0] - before_moved[1] == 2 * trained - 2 * trained // 4
    config = run_config()
    config.model.adapter = "lora"
    held = [estimate(shape, config, needs, on_gpu=True, ranks=ranks).held for ranks in (0, 1)]
    assert held[1]["critic"] - held[0]["critic"] == 4 * shape.parameters  # shards share no base


@pytest.mark.parametrize("adapter", ["none", "lora"])
def test_what_waits_on_each_of_several_ranks_is_its_part_and_beside_actors_the_whole(adapter, tiny):
    shape, needs, config = shape_of(tiny.config), ALGORITHMS["spo"].needs, run_config(lag=3)
    config.model.adapter = adapter
    name = "the weights of train.lag batches"
    held = [
        estimate(shape, config, needs, on_gpu=False, ranks=ranks).held[name] for ranks in (0, 2)
    ]
    assert 0 <= 2 * held[1] - held[0] < 2 * config.train.lag
    config.runtime.name = "ray"
    there = estimate(shape, config, needs, on_gpu=False, ranks=2).held
    assert there[name] == 3 * 4 * shape.parameters
    config.engine.name = "vllm"  # which takes an adapter from whole weights there, too
    beside = estimate(shape, config, needs, on_gpu=False, ranks=2).held
    assert beside["the rollout policy's copy"] == 4 * shape.parameters
