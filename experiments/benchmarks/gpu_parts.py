"""The parts of `make gpu-check`, each a function from a model at one size to rows of results."""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch

from experiments.benchmarks.common import ROOT, Row, alternate, compare, row
from experiments.benchmarks.memory import ADAPTER, StepCost, TooLargeError, measure_step
from experiments.benchmarks.workload import (
    BatchShape,
    MiniContests,
    Prompts,
    algorithms,
    generate_responses,
    generation_rate,
    llama_sizes,
    model_config,
    step_of,
)
from experiments.config.dependencies import VLLM_RELEASE, vllm_version
from experiments.engines.base import Completion, Engine, Sampling
from experiments.engines.hf import HFEngine
from experiments.evaluation.logprob_check import BOUNDS, mismatch
from experiments.learner.forward import Tokens
from experiments.learner.memory_check import free_bytes
from experiments.policy import loading
from experiments.policy.policy import Policy

PEAK_FLOPS = {"H100": 989e12, "H200": 989e12, "A100": 312e12, "L40S": 362e12, "B200": 2250e12}
EOS, PAD = 2, 0
Responses = tuple[Prompts, list[Completion]]
PPO = ("PPO critic=shared", "PPO critic=separate")


class SkippedError(Exception):
    """The reason why a part cannot run here."""


LARGE = BatchShape(16, 8, 512, 256)
SIZES: dict[str, tuple[str, dict[str, Any], BatchShape]] = {  # transformers' kind, sizes, batch
    "0.5B": ("qwen2", llama_sizes(896, 4864, 24, 14, 2, 151936), LARGE),
    "1.5B": ("qwen2", llama_sizes(1536, 8960, 28, 12, 2, 151936), LARGE),
    "8B": ("llama", llama_sizes(4096, 14336, 32, 32, 8, 128256), BatchShape(8, 8, 512, 256)),
}
TINY, TINY_BATCH = llama_sizes(32, 64, 2, 4, 2, 96), BatchShape(2, 4, 8, 6)


@dataclass
class Bench:
    """Model, batch and device of a part."""

    model_config: Any
    batch: BatchShape
    device: torch.device
    folder: Path  # for what a part must put on disk
    rounds: int
    own: MiniContests | None = None  # the model's own weights and prompts; None: random ones

    def policy(self) -> Policy:
        """The model's bfloat16 weights, or the same random ones each time."""
        if self.own:
            return self.own.engine.policy
        torch.manual_seed(0)
        return Policy(loading.random_model(self.model_config, self.device, torch.bfloat16))

    @property
    def ends(self) -> set[int]:
        """The tokens that end a response."""
        return self.own.ends if self.own else {EOS}

    def generate(self, engine: Engine, group_size: int, temperature: float, seed: int) -> Responses:
        """Responses to the same prompts each time → prompts, responses."""
        shape = (self.batch.prompts, self.batch.prompt_tokens)
        random = torch.Generator().manual_seed(0)
        drawn = torch.randint(3, self.model_config.vocab_size, shape, generator=random).tolist()
        prompts: Prompts = self.own.prompts if self.own else drawn
        sampling = Sampling(self.batch.response_tokens, temperature)
        return prompts, generate_responses(engine, prompts, group_size, sampling, seed)

    def free_mib(self) -> float:
        return free_bytes(self.device) / 2**20


def run_tests(bench: Bench) -> list[Row]:
    """The tests that need CUDA."""
    if bench.device.type != "cuda":
        raise SkippedError("no GPU here")
    command = [sys.executable, "-m", "pytest", "-q", "-m", "cuda"]
    start = time.perf_counter()
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError("\n".join(done.stdout.splitlines()[-15:]))
    return [row(done.stdout.splitlines()[-1], "time", [time.perf_counter() - start], "s")]


def generate(bench: Bench) -> list[Row]:
    """Tokens a second of our loop. No response ends early."""
    engine = HFEngine(bench.policy(), set(), PAD, bench.batch.prompts * bench.batch.group_size)
    return _generate(bench, engine, "our loop, bfloat16")


def _generate(bench: Bench, engine: Engine, case: str) -> list[Row]:
    def rate(number: int) -> dict[str, float]:
        generate = partial(bench.generate, engine, bench.batch.group_size, 1.0, number)
        return generation_rate(lambda: [each.tokens for each in generate()[1]])

    return compare(alternate({case: rate}, bench.rounds), "tokens/s")


def learn(bench: Bench) -> list[Row]:
    """A step of each algorithm, with an adapter where the whole model does not fit."""
    rows: list[Row] = []
    for name in ("GRPO without KL", "GRPO", "SPO q0=group", *PPO):
        for case in (name, f"{name}, {ADAPTER}"):
            try:
                cost = measure_step(bench.model_config, bench.batch, case, "bfloat16", shrink=True)
            except TooLargeError as reason:
                rows.append(row(f"{case}: {reason}", "free memory", [bench.free_mib()], "MiB"))
            else:
                rows += _learn_rows(bench, case, cost)
                break
    return rows


def _learn_rows(bench: Bench, case: str, cost: StepCost) -> list[Row]:
    """Time, tokens a second, MFU, and peak memory against the estimate."""
    rates = [bench.batch.tokens / seconds for seconds in cost.seconds]
    rows = [row(case, "time of a step", cost.seconds, "s"), row(case, "rate", rates, "tokens/s")]
    if bench.device.type != "cuda":
        return rows
    gpu = torch.cuda.get_device_name(bench.device)
    if flops := next((flops for name, flops in PEAK_FLOPS.items() if name in gpu), None):
        # Operations a parameter and token, forward and backward; an adapter's base has no weight
        # gradients. Passes without gradient are not counted.
        operations = 4 if ADAPTER in case else 6
        used = [operations * cost.parameters * rate / flops for rate in rates]
        rows.append(row(case, "MFU", used))
    rows.append(row(case, "peak memory", [cost.peak_mib], "MiB"))
    share = cost.peak_mib / cost.estimate_mib
    return [*rows, row(case, "peak relative to the estimate", [share], goal="≤ 1.15")]


def agree(bench: Bench) -> list[Row]:
    """Our loop's log-probs against the learner's, in bfloat16."""
    policy = bench.policy()
    return _agree(bench, policy, HFEngine(policy, bench.ends, PAD, 4096), "our loop")


def _agree(bench: Bench, policy: Policy, engine: Engine, name: str) -> list[Row]:
    rows, bound = [], BOUNDS["bfloat16"]
    for temperature in (1.0, 0.7):
        algorithm = algorithms()["GRPO without KL"]
        step = step_of(algorithm, policy, PAD, copied=False, temperature=temperature)
        prompts, completions = bench.generate(engine, 2, temperature, seed=0)
        prompt_of = [index // 2 for index in range(len(completions))]
        tokens = [completion.tokens for completion in completions]
        packed = Tokens.pack(prompts, prompt_of, tokens, PAD, bench.device)
        engine_logps = torch.tensor([logp for each in completions for logp in each.logps])
        learner_logps = step.learner.logp(packed)[packed.mask].cpu()
        difference = mismatch(engine_logps, learner_logps, bound)
        case = f"{name} against the learner, temperature {temperature:g}"
        rows.append(row(case, "mean difference", [difference.mean], "nats", f"≤ {bound:g}"))
        rows.append(row(case, "greatest difference", [difference.max], "nats"))
    return rows


def vllm(bench: Bench) -> list[Row]:
    """vLLM colocated: tokens a second, agreement, weight sync, memory freed by its sleep."""
    if (version := vllm_version()) != VLLM_RELEASE:
        raise SkippedError(f"vLLM {VLLM_RELEASE} is needed, here is {version or 'none'}")
    if bench.device.type != "cuda":
        raise SkippedError("no GPU here; `make test-vllm` tests vLLM without one")
    from experiments.engines.vllm import Host, VLLMEngine

    policy = bench.policy()
    bench.model_config.save_pretrained(bench.folder)  # only the shape: the weights are ours
    config = bench.batch.config(dtype="bfloat16", path=str(bench.folder))
    config.engine.name, config.engine.colocate = "vllm", True
    engine = VLLMEngine(Host(config, policy), policy, bench.ends)
    rows = _generate(bench, engine, "vLLM, colocated, until EOS")
    asleep = bench.free_mib()
    rows += _agree(bench, policy, engine, "vLLM")
    with torch.no_grad():
        for parameter in policy.model.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.1 * parameter.std())
    policy.version += 1
    start = time.perf_counter()
    engine.sync(policy)
    torch.cuda.synchronize(bench.device)
    seconds = time.perf_counter() - start
    freed = asleep - bench.free_mib()
    rows.append(row("vLLM, colocated", "weight sync, wake-up included", [seconds], "s"))
    rows.append(row("vLLM, asleep", "more GPU memory free", [freed], "MiB"))
    return rows + _agree(bench, policy, engine, "vLLM with other weights")


# name → (part, its sizes); the most important first, should time run out
PARTS: dict[str, tuple[Callable[[Bench], list[Row]], tuple[str, ...]]] = {
    "tests": (run_tests, ("0.5B",)),
    "agree": (agree, ("0.5B", "1.5B")),
    "learn": (learn, ("0.5B", "1.5B", "8B")),
    "generate": (generate, ("0.5B", "1.5B", "8B")),
    "vllm": (vllm, ("0.5B", "1.5B")),
}


def planned(model: str | None = None) -> list[str]:
    """Parts with their model, or with sizes, all small sizes before any large one."""
    if model:
        return [f"{name} {model}" for name in PARTS]
    return [f"{name} {size}" for size in SIZES for name, (_, at) in PARTS.items() if size in at]


def run_part(key: str, small: bool) -> list[Row]:
    """Rows of one part. Raises SkippedError if it cannot run here."""
    name, _, size = key.partition(" ")
    device = loading.pick_device("auto")
    if device.type == "cpu" and not small:
        raise SkippedError("no GPU here; ARGS=small=true tries the parts at tiny shapes")
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        bench = make_bench(size, small, device, Path(folder))
        return PARTS[name][0](bench)


def make_bench(size: str, small: bool, device: torch.device, folder: Path) -> Bench:
    """A model of this size, or a tiny one of its kind, or the model of this name."""
    import transformers

    rounds = 1 if small else 3
    if size not in SIZES:
        batch = TINY_BATCH if small else LARGE
        own = MiniContests.load(model_config(size, "bfloat16"), batch.prompts)
        return Bench(own.engine.policy.model.config, batch, device, folder, rounds, own)
    kind, sizes, batch = SIZES[size]
    if small:
        sizes, batch = TINY, TINY_BATCH
    settings = {"bos_token_id": 1, "eos_token_id": EOS, "pad_token_id": PAD}
    settings["tie_word_embeddings"] = kind == "qwen2"
    shape = transformers.AutoConfig.for_model(kind, **sizes, **settings)
    return Bench(shape, batch, device, folder, rounds)
