"""What only a GPU can show, part by part: each → its rows, or SkippedError with the reason."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import torch

from algorithms.base import Algorithm
from experiments.benchmarks.gpu.sizes import Bench, SkippedError, once, peak_flops
from experiments.benchmarks.rows import Row, row
from experiments.benchmarks.training.workload import algorithms, random_samples, step_of
from experiments.config.dependencies import RELEASE, installed
from experiments.config.schema import RunConfig
from experiments.engines.base import Engine, Sampling
from experiments.engines.hf import HFEngine
from experiments.evaluation.logprob_check import BOUNDS, mismatch
from experiments.learner import memory
from experiments.learner.forward import Tokens
from experiments.learner.learner import Learner
from experiments.policy.lora import adapted
from experiments.policy.weights import weights_changed
from experiments.run_dir.machine import PeakMemory

ROOT = Path(__file__).resolve().parents[3]
ENDS, PAD = {2}, 0


def tests(bench: Bench) -> list[Row]:
    """The tests that need CUDA."""
    if bench.device.type != "cuda":
        raise SkippedError("no GPU here")
    begin = time.perf_counter()
    command = [sys.executable, "-m", "pytest", "-q", "-m", "cuda"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError("\n".join(done.stdout.splitlines()[-15:]))
    return [once(done.stdout.splitlines()[-1], "time", time.perf_counter() - begin, "s")]


def write(bench: Bench) -> list[Row]:
    """Our loop's tokens a second; no response ends early, so that the batch is what it says."""
    engine = HFEngine(bench.model(), set(), PAD, bench.size.prompts * bench.size.group)
    rates = [_rate(bench, engine, number) for number in range(bench.rounds + 1)]
    return [row("our loop, bfloat16", "writing", rates[1:], "tokens/s")]


def _rate(bench: Bench, engine: Engine, number: int) -> float:
    size = bench.size
    seeds = [
        [number * 10**6 + row * 1000 + i for i in range(size.group)] for row in range(size.prompts)
    ]
    bench.wait()
    begin = time.perf_counter()
    groups = engine.generate(bench.prompts(), seeds, Sampling(size.length))
    bench.wait()
    taken = time.perf_counter() - begin
    return sum(len(c.tokens) for group in groups for c in group) / taken


def learn(bench: Bench) -> list[Row]:
    """A step of each algorithm: time, tokens a second, MFU, peak memory against the estimate.

    In micro-batches as large as fit; with an adapter where the whole model cannot be trained.
    """
    found: list[Row] = []
    shape = memory.shape_of(bench.model_config())
    for case, algorithm in algorithms().items():
        if "monte_carlo" in case or "online" in case:
            continue  # the same step as q0=group, which draws nothing
        for adapter in ("none", "lora"):
            config = bench.run_config()
            config.model.adapter = adapter
            needed = _fitted(bench, config, shape, algorithm)
            name = (
                case if adapter == "none" else f"{case}, LoRA of rank {config.model.adapter_rank}"
            )
            if needed is not None:
                found += _learn(bench, name, algorithm, config, needed)
                break
            found.append(once(f"{name}: does not fit", "GPU memory", bench.free() / 2**20, "MiB"))
    return found


def _fitted(
    bench: Bench, config: RunConfig, shape: memory.Shape, algorithm: Algorithm
) -> int | None:
    """Bytes that it needs, in micro-batches made small enough; None where nothing helps."""
    while True:
        on_gpu = bench.device.type == "cuda"
        needed = memory.estimate(shape, config, algorithm.needs, on_gpu).without_writing
        if needed < 0.92 * bench.free():
            return needed
        if config.train.micro_batch == 1:
            return None
        config.train.micro_batch //= 2


def _learn(
    bench: Bench, case: str, algorithm: Algorithm, config: RunConfig, needed: int
) -> list[Row]:
    mark, size = PeakMemory(), bench.size
    model = bench.model()
    if config.model.adapter == "lora":
        model = adapted(model, config.model, 0)
    pieces = {"micro_batch": config.train.micro_batch}
    step = step_of(algorithm, model, PAD, copied=False, **pieces)
    vocabulary = size.widths["vocab_size"]
    samples = random_samples(vocabulary, size.prompts, size.group, size.width, size.length)
    times = timed(bench, lambda: step(samples, size.group))
    trained = size.prompts * (size.width + size.group * size.length)
    case = f"{case}, {pieces['micro_batch']} rows at once"
    found = [
        row(case, "time of a step", times, "s"),
        row(case, "learning", [trained / t for t in times], "tokens/s"),
    ]
    if promised := peak_flops(bench.device):
        # 6 operations a parameter and token of forward and backward; 4 where most is frozen, and
        # passes without gradient are not counted.
        each = 4 if config.model.adapter == "lora" else 6
        parameters = sum(parameter.numel() for parameter in model.parameters())
        used = [each * parameters * trained / t / promised for t in times]
        found.append(row(case, "MFU", used))
    if bench.device.type == "cuda":
        peak = mark.columns()[f"memory/gpu{bench.device.index or 0}_peak_mb"]
        found.append(once(case, "peak memory", peak, "MiB"))
        found.append(once(case, "peak to estimate", peak * 2**20 / needed, at_most=1.15))
    return found


def timed(bench: Bench, work: Callable[[], object]) -> list[float]:
    """Seconds of each round; the first, which warms up, is not counted."""
    times = []
    for _ in range(bench.rounds + 1):
        bench.wait()
        begin = time.perf_counter()
        work()
        bench.wait()
        times.append(time.perf_counter() - begin)
    return times[1:]


def agree(bench: Bench) -> list[Row]:
    """Our loop's log-probs against the learner's in bfloat16, at two temperatures."""
    model = bench.model()
    return _agree(bench, model, HFEngine(model, ENDS, PAD, 4096), "our loop")


def _agree(bench: Bench, model, engine: Engine, name: str) -> list[Row]:
    found = []
    for temperature in (1.0, 0.7):
        learner = _learner(bench, model, temperature)
        prompts, size = bench.prompts(), bench.size
        seeds = [[10 * row + i for i in range(2)] for row in range(len(prompts))]
        groups = engine.generate(prompts, seeds, Sampling(size.length, temperature))
        written = [(row, c) for row, group in enumerate(groups) for c in group]
        tokens = Tokens.pack(
            prompts, [row for row, _ in written], [c.tokens for _, c in written], PAD, bench.device
        )
        told = torch.tensor([logp for _, c in written for logp in c.logps])
        scored = learner.logp(tokens)[tokens.mask].cpu()
        difference = mismatch(told, scored, BOUNDS["bfloat16"])
        case = f"{name} against the learner, temperature {temperature:g}"
        bound = BOUNDS["bfloat16"]
        found.append(once(case, "mean difference", difference.mean, "nats", at_most=bound))
        found.append(once(case, "greatest difference", difference.max, "nats"))
    return found


def _learner(bench: Bench, model, temperature: float) -> Learner:
    algorithm = algorithms()["GRPO without KL"]
    return step_of(algorithm, model, PAD, copied=False, temperature=temperature).learner


def vllm(bench: Bench) -> list[Row]:
    """Tokens a second; agreement; other weights in place; asleep, what is free; awake again."""
    if (found := installed()) != RELEASE:
        raise SkippedError(f"vLLM {RELEASE} is needed, here is {found or 'none'}")
    if bench.device.type != "cuda":
        raise SkippedError("no GPU here; `make test-vllm` tests vLLM without one")
    from experiments.engines.vllm import Host, VLLMEngine

    model = bench.model()
    model.config.save_pretrained(bench.folder)  # the shape is read there, the weights are ours
    config = bench.run_config()
    config.model.path, config.engine.name = str(bench.folder), "vllm"
    config.engine.colocate = True
    engine = VLLMEngine(Host(config, model), model, ENDS)
    rates = [_rate(bench, engine, number) for number in range(bench.rounds + 1)]
    asleep = bench.free()
    rows = [row("vLLM, colocated", "writing, ends counted", rates[1:], "tokens/s")]
    rows += _agree(bench, model, engine, "vLLM")
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.1 * parameter.std())
    weights_changed(model)
    begin = time.perf_counter()
    engine.sync(model)
    bench.wait()
    rows.append(
        once("vLLM, colocated", "weight sync, awake first", time.perf_counter() - begin, "s")
    )
    awake = bench.free()
    rows.append(once("vLLM, asleep", "more GPU memory free", (asleep - awake) / 2**20, "MiB"))
    return rows + _agree(bench, model, engine, "vLLM with other weights")


def compiled(bench: Bench) -> list[Row]:
    """torch.compile of each block against none: the learner's whole step."""
    if bench.device.type != "cuda":
        raise SkippedError("no GPU here; on a CPU compiling takes a minute and does not pay")
    algorithm, size = algorithms()["GRPO without KL"], bench.size
    vocabulary = size.widths["vocab_size"]
    samples = random_samples(vocabulary, size.prompts, size.group, size.width, size.length)
    times: dict[str, list[float]] = {}
    for name in ("eager", "compiled"):
        model = bench.model()
        if name == "compiled":
            for block in model.base_model.layers:
                block.compile(dynamic=True)
        step = step_of(algorithm, model, PAD, copied=False, micro_batch=32)
        begin = time.perf_counter()
        step(samples, size.group)
        bench.wait()
        first = time.perf_counter() - begin
        times[name] = timed(bench, lambda step=step: step(samples, size.group))
    ratios = [a / b for a, b in zip(times["eager"], times["compiled"], strict=True)]
    return [
        once("blocks compiled", "first step", first, "s"),
        row("blocks compiled", "eager to compiled, time of a step", ratios),
    ]


# name → (part, the sizes that it is run at); the most telling first, should time run out
PARTS: dict[str, tuple[Callable[[Bench], list[Row]], tuple[str, ...]]] = {
    "tests": (tests, ("0.5B",)),
    "agree": (agree, ("0.5B", "1.5B")),
    "learn": (learn, ("0.5B", "1.5B", "8B")),
    "write": (write, ("0.5B", "1.5B", "8B")),
    "vllm": (vllm, ("0.5B", "1.5B")),
    "compiled": (compiled, ("0.5B",)),
}
