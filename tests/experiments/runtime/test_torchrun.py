"""1, 2 and 3 ranks give one process's loss, gradient and metrics, and none waits for another."""

import copy
import os
import socket
from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch
import torch.multiprocessing as mp

import algorithms
from algorithms import make
from envs.problem import Judgement, Problem, Verdict
from experiments.engine_check import LogprobCheck
from experiments.engines.base import Request, Sampling
from experiments.engines.hf import HFEngine
from experiments.engines.weight_sync import WeightSync
from experiments.errors import UserError
from experiments.learner.learner import Learner
from experiments.policy import lora
from experiments.policy.patches import checkpoint_activations
from experiments.policy.policy import Policy, copy_weights, frozen_copy
from experiments.run_dir.ledger import Ledger
from experiments.runtime import torchrun
from experiments.runtime.base import SINGLE_PROCESS
from experiments.runtime.torchrun import (
    NullEngine,
    RunEnded,
    ShardedEngine,
    SyncedEngine,
    Torchrun,
    TorchrunLearner,
    TorchrunRay,
    TorchrunWeightSync,
    _trimmed,
)
from experiments.sample import Origin, PromptedProblem, Sample
from tests.compose import engine_config, model_config, run_config, train_config
from tests.experiments.learner.learning import GROUP, REWARDS, learner_of, samples_from

CASES = {  # name → (algorithm, its options, training options)
    "spo-monte-carlo": ("spo", {"q0": "monte_carlo"}, {"micro_batch": 5}),
    "spo-online": ("spo", {"q0": "online"}, {"truncation": "mask"}),
    "spo-offline": (
        "spo",
        {"q0": "group", "loss": "squared"},
        {"micro_tokens": 40, "reference_every": 1},
    ),
    "ppo-shared": ("ppo", {"critic": "shared", "entropy_coef": 0.01}, {"micro_batch": 3}),
    "ppo-checkpointed": ("ppo", {}, {"micro_batch": 5, "epochs": 2, "clip_quantile": 0.5}),
    "grpo": ("grpo", {}, {"correction": "truncated"}),
    "grpo-few": ("grpo", {"zero_variance": "drop"}, {}),  # one group is kept: ranks stay empty
    "ppo_ewma-adapter": ("ppo_ewma", {"decay": 0.5}, {"minibatches": 2}),
    "remix": ("remix", {"base_from": 0, "reincarnate_at": 1}, {"epochs": 2}),
    "prime": ("prime", {}, {"micro_batch": 5}),
}
FAST = ("spo-offline", "ppo-checkpointed", "grpo-few", "ppo_ewma-adapter", "prime")
# A token that occurs only in a group whose rewards are equal has a gradient that is rounding. With
# AdamW's own ε, 1e-8, its first step is 7 % of the rate, in a direction that depends on the order
# of additions.
STEADY_EPS = 1e-4


def joined(rank, size, port, kind=Torchrun):
    os.environ |= {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(size)}
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    torch.set_num_threads(1)
    return kind()


def free_port():
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return found.getsockname()[1]


def on_ranks(function, size, *given):
    """Call function(rank, size, port, *given) in as many processes."""
    mp.start_processes(function, (size, free_port(), *given), nprocs=size, start_method="fork")


class Known:
    """Initial values that are known."""

    def compute(self, samples, batch):
        return batch.rewards.new_tensor([0.1 * (i // GROUP) for i in range(len(samples))])


def updated(name, model, ranks=SINGLE_PROCESS, main=True, eps=1e-8):
    """Update twice → metrics, the last gradients and the state, whole on the main rank."""
    algorithm, options, train = CASES.get(name, (name, {}, {}))
    few = name == "grpo-few"
    samples = samples_from(model, [1.0, 0.0, 0.0, 1.0] + [0.0] * 8 if few else REWARDS)
    if name == "spo-offline":
        for i in (2, 3, 6, 7, 10, 11):
            samples[i] = replace(samples[i], logps=None, origin=Origin("dataset"))
    policy = Policy(copy.deepcopy(model))
    if name == "ppo-checkpointed":
        checkpoint_activations(policy)
    if name.endswith("-adapter"):
        policy = lora.adapted(policy, model_config(adapter="lora", adapter_rank=4), seed=0)
    config = train_config(warmup_steps=0, **train)
    made = make(algorithm, **options, learning_rate=1e-3)
    learner = Learner(policy, 0, made, config, 10, Ledger(), ranks=ranks)
    for group in learner.optimiser.param_groups:
        group["eps"] = eps
    values = Known() if main and made.needs.initial_value != "none" else None
    metrics = [learner.update(samples, GROUP, values) for _ in range(2)]
    held = [p.grad for group in learner.optimiser.param_groups for p in group["params"]]
    whole = [g.full_tensor() if hasattr(g, "full_tensor") else g for g in held if g is not None]
    return metrics, whole, learner.state_dict(keep=main)


def work(rank, size, port, names, model, folder, eps):
    ranks = joined(rank, size, port)
    for name in names:
        found = updated(name, model, ranks, ranks.is_rank_zero, eps)
        if ranks.is_rank_zero:
            torch.save(found, f"{folder}/{name}.pt")
        else:  # given, not kept
            assert {v for module in found[2]["modules"].values() for v in module.values()} == {None}
    torch.distributed.destroy_process_group()


def check(size, names, model, folder, eps=1e-8):
    on_ranks(work, size, names, model, folder, eps)
    for name in names:
        metrics, gradients, state = torch.load(f"{folder}/{name}.pt", weights_only=False)
        alone = updated(name, model, eps=eps)
        for one, other in zip(metrics, alone[0], strict=True):
            assert one == pytest.approx(other, abs=1e-5, rel=1e-5, nan_ok=True), name
        for one, other in zip(gradients, alone[1], strict=True):
            assert eps != 1e-8 or (one - other).abs().max() < 1e-5, name
        for key, module in alone[2]["modules"].items():
            shapes = {name: value.shape for name, value in state["modules"][key].items()}
            assert shapes == {name: value.shape for name, value in module.items()}


def test_two_ranks_equal_one_process(tiny, tmp_path):
    check(2, FAST, tiny, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("size", [1, 2, 3])
def test_every_kind_of_objective_on_any_number_of_ranks(size, tiny, tmp_path):
    check(size, tuple(CASES), tiny, tmp_path)


@pytest.mark.slow
def test_every_algorithm_on_two_ranks(tiny, tmp_path):
    check(2, algorithms.names(), tiny, tmp_path, STEADY_EPS)


class Skips(HFEngine):
    """Ignores the new weights, and keeps its version or claims the new one."""

    honest = True

    def sync(self, weights):
        copy_weights(weights, into=frozen_copy(self.policy))  # all ranks gather them together
        if not self.honest:
            self.policy.version = weights.version


def faulty(rank, size, port, model, folder):
    """One rank skips its sync."""
    ranks = joined(rank, size, port)
    samples = samples_from(model, REWARDS)
    made = make("spo", learning_rate=1e-3, q0="group_soft")
    policy = Policy(copy.deepcopy(model))
    learner = Learner(policy, 0, made, train_config(), 10, Ledger(), ranks=ranks)
    engine = (Skips if rank else HFEngine)(frozen_copy(Policy(model)), {1}, 0, 64)
    sharded = ShardedEngine(ranks, "engine", engine, learner.policy)
    sync = WeightSync(engine, learner.policy, train_config())
    weight_sync = TorchrunWeightSync(ranks, "weight_sync", sync)
    learner = TorchrunLearner(ranks, "learner", learner)
    if not ranks.is_rank_zero:
        ranks.serve()
        Skips.honest = False
        ranks.serve()
        torch.distributed.destroy_process_group()
        return
    config = run_config(None, engine=engine_config(logprob_check_samples=16))
    config.task.max_response_tokens = 12
    prompts = list(dict.fromkeys(sample.prompt for sample in samples))
    watch, found = LogprobCheck(config, sharded, learner, prompts), {}
    found["before"] = watch.check(1).warned
    learner.update(samples, GROUP, None)
    weight_sync.follow(1)
    weight_sync.begin(2)
    request = Request([p.tokens for p in prompts], [[1, 2]] * 3, watch.sampling)
    origins = [Origin("policy", "run", 2, c.version) for g in sharded.generate(request) for c in g]
    try:
        weight_sync.check([replace(samples[0], origin=origin) for origin in origins])
    except RuntimeError as error:
        found["stale"] = str(error)
    ranks._send(("stop",))
    weight_sync.follow(2)
    found["lying"] = watch.check(2).warned
    torch.save(found, f"{folder}/faults.pt")
    ranks.stop()


def test_a_sync_that_one_rank_skips_is_found(tiny, tmp_path):
    on_ranks(faulty, 2, tiny, tmp_path)
    found = torch.load(tmp_path / "faults.pt")
    assert (found["before"], found["lying"]) == (False, True)
    assert "does not have the weights" in found["stale"]


def update_and_sync(rank, size, port, model, samples, folder):
    ranks = joined(rank, size, port, TorchrunRay)
    policy = Policy(model)
    held = ranks.engine_copy(policy)
    made = make("grpo", learning_rate=1e-3)
    learner = Learner(policy, 0, made, train_config(warmup_steps=0), 10, Ledger(), ranks=ranks)
    engine = HFEngine(held, {1}, 0, 64) if ranks.is_rank_zero else NullEngine(held)
    synced = SyncedEngine(ranks, "engine", engine, learner.policy)
    learner.update(samples, GROUP, None)
    if ranks.is_rank_zero:
        synced.sync(learner.policy)
        torch.save((synced.version, held.model.state_dict()), f"{folder}/main.pt")
        ranks.stop()
        return
    ranks.serve()
    assert {parameter.device.type for parameter in held.model.parameters()} == {"meta"}
    ranks.leave()


def test_beside_actors_rank_zero_alone_holds_whole_weights(tiny, tmp_path):
    samples = samples_from(tiny, REWARDS)
    alone = learner_of(tiny, make("grpo", learning_rate=1e-3))
    alone.update(samples, GROUP, None)
    on_ranks(update_and_sync, 2, tiny, samples, tmp_path)
    version, weights = torch.load(tmp_path / "main.pt")
    assert version == 1
    for name, value in alone.model.state_dict().items():
        torch.testing.assert_close(weights[name], value, rtol=0, atol=1e-5)


# What ranks do when one of them cannot go on


def start(rank, size, port, case, folder):
    ranks, found = joined(rank, size, port), "began"
    torchrun.open_engines = lambda *given: None
    config = run_config(None, engine=engine_config(name="vllm"))
    try:
        if ranks.is_rank_zero and case == "rank 0 cannot":
            raise UserError("no such folder")
        if not ranks.is_rank_zero and case == "another cannot":
            ranks.start_error = "no sandbox"
        else:
            ranks.engines(config, None, None)
        if not ranks.is_rank_zero:
            ranks.serve()
    except UserError as error:
        found = str(error)
    except RunEnded:
        found = "ended"
    (ranks.stop if ranks.is_rank_zero else ranks.leave)()
    (folder / str(rank)).write_text(found)


@pytest.mark.parametrize(
    ("case", "expected"),
    [
        ("all begin", ["began", "began"]),
        ("rank 0 cannot", ["no such folder", "ended"]),
        ("another cannot", ["rank 1: no sandbox", "began"]),
    ],
)
def test_ranks_meet_before_vllm_starts(case, expected, tmp_path):
    on_ranks(start, 2, case, tmp_path)
    assert [(tmp_path / name).read_text() for name in "01"] == expected


class Part:
    """A part that every rank has."""

    def __init__(self, ranks):
        self.ranks = ranks
        ranks.targets["part"] = self

    def asks(self, value):
        return self.ranks.broadcast(value)

    def interrupted(self):
        raise KeyboardInterrupt

    def both(self):
        return self.ranks.gather(self.ranks.rank)


def refuse(error):
    raise error


def ask(rank, size, port, folder):
    ranks = joined(rank, size, port)
    Part(ranks)
    if not ranks.is_rank_zero:
        ranks.serve()
        ranks.leave()
        return
    for error in (UserError("the cluster has ended"), OSError(28, "no space")):
        with pytest.raises(type(error)):
            ranks.call("part", "asks", None, own_args=(lambda error=error: refuse(error),))
        assert ranks.call("part", "both") == [0, 1]  # while the other waits for its value
    with pytest.raises(KeyboardInterrupt):
        ranks.call("part", "interrupted")
    with pytest.raises(RuntimeError, match="out of step"):
        ranks.call("part", "both")
    (folder / "done").touch()
    os._exit(0)  # the other rank has ended in its own interrupt


def test_ranks_stay_in_step_while_they_wait_and_are_not_called_after_an_interrupt(tmp_path):
    on_ranks(ask, 2, tmp_path)
    assert (tmp_path / "done").exists()


class RecordingEngine:
    def __init__(self):
        self.calls = []

    def generate(self, request, finished):
        self.calls.append((request.prompts, request.begun, request.keep))
        return [f"to {prompt}" for prompt in request.prompts]

    def release_memory(self):
        self.calls.append("release_memory")


def test_rank_i_of_n_generates_for_every_nth_prompt():
    engine, begun = RecordingEngine(), [[(1,)], [(2,)], [(3,)], [(4,)]]
    ranks = SimpleNamespace(rank=1, size=2, targets={}, gather=lambda result: result)
    sharded = ShardedEngine(ranks, "engine", engine, trained=None)
    request = Request(["a", "b", "c", "d"], [[0]] * 4, Sampling(4), begun, keep=True)
    assert sharded.generate_shard(request) == ["to b", "to d"]
    assert engine.calls == [(["b", "d"], [[(2,)], [(4,)]], True)]
    assert sharded.generate_shard(request.part(slice(1))) == []
    assert engine.calls[1:] == ["release_memory"]


def test_other_ranks_get_a_samples_verdict_but_no_program_or_tests():
    problem = Problem("p", "add two numbers", (), ())
    judgement = Judgement(Verdict.ACCEPTED, 1, 2, 2, "print(1)", detail="stderr")
    prompt, origin = PromptedProblem(problem, (3,)), Origin("policy", "run", 1, 0)
    sent = _trimmed(Sample(prompt, (4,), (-1.0,), judgement, 1.0, False, origin))
    assert sent.accepted and sent.judgement.program == sent.judgement.detail == ""
    assert sent.prompt == PromptedProblem(Problem("p", "", (), ()), (3,))
