"""`make gpu-check`: everything that only a GPU can show, in under nine minutes on 80 GB.

Every part runs in a process of its own, within the remaining time. A part that cannot run, for want
of vLLM, memory, time or a GPU, is reported with its reason. `small=true` tries every part at tiny
shapes, in this process, on any device. Results: `gpu.json` and `gpu.md`.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from pydantic import PositiveFloat

from algorithms.base import Algorithm
from experiments.benchmarks import common
from experiments.benchmarks.common import ROOT, Row, row
from experiments.benchmarks.workload import (
    BatchShape,
    algorithms,
    engine_tokens,
    llama_sizes,
    step_of,
)
from experiments.config.dependencies import VLLM_RELEASE, vllm_version
from experiments.config.schema import RunConfig
from experiments.engines.base import Engine, Sampling
from experiments.engines.hf import HFEngine
from experiments.evaluation.logprob_check import BOUNDS, mismatch
from experiments.learner import memory
from experiments.learner.forward import Tokens
from experiments.learner.memory_check import free_bytes
from experiments.policy import loading
from experiments.policy.lora import adapted
from experiments.policy.policy import Policy
from experiments.run_dir.machine import PeakMemory

PEAK_FLOPS = {"H100": 989e12, "H200": 989e12, "A100": 312e12, "L40S": 362e12, "B200": 2250e12}
EOS, PAD = 2, 0


@dataclass
class Options:
    """The command line."""

    small: bool = False
    budget: PositiveFloat = 510.0  # seconds for all parts
    out: Path = common.FOLDER / "gpu"
    part: str | None = None  # run one part, e.g. "learn 8B", and write its rows to `out`


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

    def policy(self) -> Policy:
        """The same random bfloat16 weights each time."""
        torch.manual_seed(0)
        return Policy(loading.random_model(self.model_config, self.device, torch.bfloat16))

    def prompts(self) -> list[list[int]]:
        shape = (self.batch.prompts, self.batch.prompt_tokens)
        generator = torch.Generator().manual_seed(0)
        return torch.randint(3, self.model_config.vocab_size, shape, generator=generator).tolist()

    def free(self) -> int:
        """Free bytes of the device's memory."""
        return free_bytes(self.device)

    def timed(self, work: Callable[[], object]) -> float:
        """Seconds until the device has finished."""
        self._wait()
        start = time.perf_counter()
        work()
        self._wait()
        return time.perf_counter() - start

    def times(self, work: Callable[[], object]) -> list[float]:
        """Seconds of each round. The first one warms up and is not counted."""
        return [self.timed(work) for _ in range(self.rounds + 1)][1:]

    def _wait(self) -> None:
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)


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
    return [row("our loop, bfloat16", "generation", _rates(bench, engine), "tokens/s")]


def _rates(bench: Bench, engine: Engine) -> list[float]:
    tokens: list[int] = []
    prompts, sampling = bench.prompts(), Sampling(bench.batch.response_tokens)

    def work() -> None:
        group = bench.batch.group_size
        tokens.append(engine_tokens(engine, prompts, group, sampling, len(tokens)))

    times = bench.times(work)
    return [count / seconds for count, seconds in zip(tokens[1:], times, strict=True)]


def learn(bench: Bench) -> list[Row]:
    """A step of each algorithm, with an adapter where the whole model does not fit."""
    rows: list[Row] = []
    shape = memory.shape_of(bench.model_config)
    for name, algorithm in algorithms().items():
        if "monte_carlo" in name or "online" in name:
            continue  # the same step as q0=group
        for adapter in ("none", "lora"):
            config = bench.batch.config(dtype="bfloat16", adapter=adapter)
            case = name if adapter == "none" else f"{name}, LoRA rank {config.model.adapter_rank}"
            needed = fit_micro_batch(bench, config, shape, algorithm)
            if needed is not None:
                rows += _learn(bench, case, algorithm, config, needed)
                break
            free = bench.free() / 2**20
            rows.append(row(f"{case}: does not fit", "GPU memory", [free], "MiB"))
    return rows


def fit_micro_batch(
    bench: Bench, config: RunConfig, shape: memory.Shape, algorithm: Algorithm
) -> int | None:
    """Halve the micro-batch until a step fits. Returns its bytes, or None if none fits."""
    on_gpu = bench.device.type == "cuda"
    while True:
        needed = memory.estimate(shape, config, algorithm.needs, on_gpu).without_writing
        if needed < 0.92 * bench.free():
            return needed
        if config.train.micro_batch == 1:
            return None
        config.train.micro_batch //= 2


def _learn(
    bench: Bench, case: str, algorithm: Algorithm, config: RunConfig, needed: int
) -> list[Row]:
    """Time, tokens a second, MFU, and peak memory against the estimate."""
    peak, batch, policy = PeakMemory(), bench.batch, bench.policy()
    lora, micro_batch = config.model.adapter == "lora", config.train.micro_batch
    if lora:
        policy = adapted(policy, config.model, 0)
    step = step_of(algorithm, policy, PAD, copied=False, micro_batch=micro_batch)
    samples, tokens = batch.samples(bench.model_config.vocab_size), batch.tokens
    times = bench.times(lambda: step(samples, batch.group_size))
    case = f"{case}, micro-batch {micro_batch}"
    rows = [
        row(case, "time of a step", times, "s"),
        row(case, "learning", [tokens / seconds for seconds in times], "tokens/s"),
    ]
    if bench.device.type != "cuda":
        return rows
    gpu = torch.cuda.get_device_name(bench.device)
    if flops := next((flops for name, flops in PEAK_FLOPS.items() if name in gpu), None):
        # Operations a parameter and token, forward and backward; an adapter's base has no weight
        # gradients. Passes without gradient are not counted.
        operations = 4 if lora else 6
        parameters = sum(parameter.numel() for parameter in policy.model.parameters())
        used = [operations * parameters * tokens / seconds / flops for seconds in times]
        rows.append(row(case, "MFU", used))
    peak_mib = peak.columns()[f"memory/gpu{bench.device.index or 0}_peak_mb"]
    rows.append(row(case, "peak memory", [peak_mib], "MiB"))
    return [*rows, row(case, "peak to estimate", [peak_mib * 2**20 / needed], at_most=1.15)]


def agree(bench: Bench) -> list[Row]:
    """Our loop's log-probs against the learner's, in bfloat16."""
    policy = bench.policy()
    return _agree(bench, policy, HFEngine(policy, {EOS}, PAD, 4096), "our loop")


def _agree(bench: Bench, policy: Policy, engine: Engine, name: str) -> list[Row]:
    rows, bound, prompts = [], BOUNDS["bfloat16"], bench.prompts()
    seeds = [[10 * number + i for i in range(2)] for number in range(len(prompts))]
    for temperature in (1.0, 0.7):
        algorithm = algorithms()["GRPO without KL"]
        step = step_of(algorithm, policy, PAD, copied=False, temperature=temperature)
        groups = engine.generate(prompts, seeds, Sampling(bench.batch.response_tokens, temperature))
        numbered = [(number, c) for number, group in enumerate(groups) for c in group]
        numbers, tokens = [number for number, _ in numbered], [c.tokens for _, c in numbered]
        packed = Tokens.pack(prompts, numbers, tokens, PAD, bench.device)
        engine_logps = torch.tensor([logp for _, c in numbered for logp in c.logps])
        learner_logps = step.learner.logp(packed)[packed.mask].cpu()
        difference = mismatch(engine_logps, learner_logps, bound)
        case = f"{name} against the learner, temperature {temperature:g}"
        rows.append(row(case, "mean difference", [difference.mean], "nats", at_most=bound))
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
    engine = VLLMEngine(Host(config, policy), policy, {EOS})
    rows = [row("vLLM, colocated", "generation until EOS", _rates(bench, engine), "tokens/s")]
    asleep = bench.free()
    rows += _agree(bench, policy, engine, "vLLM")
    with torch.no_grad():
        for parameter in policy.model.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.1 * parameter.std())
    policy.version += 1
    seconds = bench.timed(lambda: engine.sync(policy))
    freed = (asleep - bench.free()) / 2**20
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


def main(options: Options) -> int:
    """Run all parts and write the page. Returns 1 if any failed."""
    if options.part:
        rows = run_part(options.part, options.small)
        options.out.write_text(json.dumps([asdict(each) for each in rows]))
        return 0
    start = time.monotonic()
    results: dict[str, dict[str, Any]] = {"parts": {}, "skipped": {}, "failed": {}}
    for key in planned():
        remaining = options.budget - (time.monotonic() - start)
        status, result = "skipped", f"no time left of {options.budget:.0f} s"
        if remaining >= 5:
            run = run_here if options.small else run_in_child
            status, result = run(key, remaining)
        results[status][key] = result
        print(f"{key}: {result if status != 'parts' else 'done'}", flush=True)
    write_page(options.out, results, time.monotonic() - start)
    print(f"written to {options.out / 'gpu.md'}")
    return min(1, len(results["failed"]))


def planned() -> list[str]:
    """Parts with sizes, all small sizes before any large one."""
    return [f"{name} {size}" for size in SIZES for name, (_, at) in PARTS.items() if size in at]


def run_part(key: str, small: bool) -> list[Row]:
    """Rows of one part. Raises SkippedError if it cannot run here."""
    name, size = key.split()
    device = loading.pick_device("auto")
    if device.type == "cpu" and not small:
        raise SkippedError("no GPU here; ARGS=small=true tries the parts at tiny shapes")
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        bench = make_bench(size, small, device, Path(folder))
        return PARTS[name][0](bench)


def make_bench(size: str, small: bool, device: torch.device, folder: Path) -> Bench:
    """A model of this size, or a tiny one of its kind."""
    import transformers

    kind, sizes, batch = SIZES[size]
    if small:
        sizes, batch = TINY, TINY_BATCH
    settings = {"bos_token_id": 1, "eos_token_id": EOS, "pad_token_id": PAD}
    settings["tie_word_embeddings"] = kind == "qwen2"
    model_config = transformers.AutoConfig.for_model(kind, **sizes, **settings)
    return Bench(model_config, batch, device, folder, rounds=1 if small else 3)


def run_here(key: str, _: float) -> tuple[str, Any]:
    """Run a part at tiny shapes; returns its status and its rows or reason."""
    try:
        return "parts", [asdict(each) for each in run_part(key, small=True)]
    except SkippedError as reason:
        return "skipped", str(reason)
    except Exception as error:
        return "failed", f"{type(error).__name__}: {error}"


def run_in_child(key: str, timeout_s: float) -> tuple[str, Any]:
    """Run a part in a process of its own; returns its status and its rows or reason."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "rows.json"
        command = [sys.executable, "-m", "experiments.benchmarks.gpu_check"]
        command += [f"part={key}", f"out={out}"]
        try:
            done = subprocess.run(
                command, cwd=ROOT, stderr=subprocess.PIPE, text=True, timeout=timeout_s, check=False
            )
        except subprocess.TimeoutExpired:
            return "skipped", f"not done within the remaining {timeout_s:.0f} s"
        if done.returncode == 0:
            return "parts", json.loads(out.read_text())
        last = (done.stderr.strip().splitlines() or [f"ended with {done.returncode}"])[-1]
        kind, _, reason = last.partition(": ")
        return ("skipped", reason) if kind.endswith("SkippedError") else ("failed", last)


def write_page(folder: Path, results: dict[str, dict[str, Any]], seconds: float) -> None:
    """Write `gpu.json` and `gpu.md`."""
    made = common.made() | {"seconds": round(seconds), "device": _device_name()}
    folder.mkdir(parents=True, exist_ok=True)
    common.write_json(folder / "gpu.json", {"made": made, **results})
    versions = ", ".join(f"{name} {number}" for name, number in made["versions"].items())
    origin = f"{made['device']}; {made['machine']}; {versions}; commit {made['commit']}; "
    paragraphs = ["# On a GPU", f"{origin}{made['when']}; {seconds:.0f} s."]
    for key, rows in results["parts"].items():
        paragraphs += [f"## {key}", common.table(rows)]
    for title in ("skipped", "failed"):
        if results[title]:
            reasons = [f"- {key}: {reason}" for key, reason in results[title].items()]
            paragraphs += [f"## {title.capitalize()}", "\n".join(reasons)]
    (folder / "gpu.md").write_text("\n\n".join(paragraphs) + "\n")


def _device_name() -> str:
    if not torch.cuda.is_available():
        return "no GPU: a trial at tiny shapes, whose figures mean nothing"
    memory_gib = torch.cuda.get_device_properties(0).total_memory / 2**30
    return f"{torch.cuda.get_device_name(0)}, {memory_gib:.0f} GiB"


if __name__ == "__main__":
    common.command(Options, main)
