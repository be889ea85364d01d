"""`make bench-memory`: peak memory and time of a step of each algorithm, against the estimate.

Model, batch and lengths are the same for all. Each measurement is the growth of a process of its
own, from before the model is loaded to its peak (on a GPU: torch's own). Cases that do not fit into
free memory are left out.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from algorithms.base import Algorithm
from experiments.benchmarks import common
from experiments.benchmarks.common import Row, in_new_process, row
from experiments.benchmarks.workload import BatchSize, Dtype, algorithms, llama_sizes, step_of
from experiments.config.composition import config_of
from experiments.config.schema import RunConfig
from experiments.learner import memory
from experiments.learner.memory import Shape, shape_of
from experiments.run_dir.machine import PeakMemory
from experiments.studies.cli import choose

if TYPE_CHECKING:
    import torch

ADAPTER, CHECKPOINTS, MICRO_TOKENS = "adapter", "checkpoint_activations", "micro_tokens"
CASES = (
    *("GRPO without KL", "GRPO", "SPO q0=group", "PPO critic=shared", "PPO critic=separate"),
    *(f"{name}, {ADAPTER}" for name in ("GRPO", "SPO q0=group", "PPO critic=separate")),
    *(f"SPO q0=group, {CHECKPOINTS}", f"SPO q0=group, {MICRO_TOKENS}"),
)
MICRO_TOKENS_SHARE = 0.25  # of a batch's tokens
SHAPES: dict[str, tuple[dict[str, int] | None, BatchSize]] = {  # None: the bundled model
    "nano": (None, BatchSize(16, 8, 48, 48)),
    "100M": (llama_sizes(768, 3072, 9, 12, 12, 16384), BatchSize(2, 4, 48, 48)),
    "500M": (llama_sizes(1536, 6144, 12, 12, 12, 32768), BatchSize(1, 4, 32, 32)),
}
LARGEST = "PPO critic=separate"  # the others' peaks are compared with its
WITHIN = "≤ 1.25"  # goal of measured peak to estimate, either way
STEPS = 3
HOST_PEAK = "memory/peak_mb"


@dataclass
class Options(common.Options):
    shapes: str | None = None  # some of the shapes, separated by commas; by default all
    cases: str | None = None  # some of the cases, separated by semicolons; by default all


class TooLargeError(Exception):
    """The reason why a step does not fit into memory."""


@dataclass(frozen=True)
class StepCost:
    """Growth of a process by a step, its estimate, and the time of each step."""

    peak_mib: float
    estimate_mib: float
    seconds: list[float]
    parameters: int


def main(options: Options) -> None:
    """Measure and write `memory.json`."""
    cases = choose("cases", options.cases, CASES, separator=";")
    rows, left_out = list[Row](), dict[str, str]()
    for shape in choose("shapes", options.shapes, list(SHAPES)):
        costs = dict[str, StepCost]()
        for case in cases:
            try:
                costs[case] = in_new_process(measure, shape, case)
                print(f"{shape}, {case}: {costs[case]}", file=sys.stderr)
            except Exception as error:  # whatever ends that process
                left_out[f"{shape}, {case}"] = f"{type(error).__name__}: {error}"
        rows += rows_of(shape, costs)
    common.finish("memory", rows, options.out, left_out=left_out)


def measure(shape_name: str, case: str) -> StepCost:
    """Measure a case on one of SHAPES, in float32."""
    from experiments.policy import loading

    sizes, batch = SHAPES[shape_name]
    model_config: Any = loading.read_config(config_of([]).model)
    if sizes:
        model_config = type(model_config)(**sizes, head_dim=None, tie_word_embeddings=True)
    return measure_step(model_config, batch, case, "float32")


def measure_step(
    model_config: Any, batch: BatchSize, case: str, dtype: Dtype, shrink: bool = False
) -> StepCost:
    """Measure a case in this process. Raises TooLargeError if the estimate exceeds free memory.

    `shrink` halves the micro-batch until it fits.
    """
    import torch

    from experiments.policy import loading
    from experiments.policy.policy import Policy

    loading.set_up_torch(1)
    name, _, variant = case.partition(", ")
    device, algorithm = loading.pick_device("auto"), algorithms()[name]
    on_gpu = device.type == "cuda"
    shape, config = shape_of(model_config), _config(batch, variant, dtype)
    needed = _fit(shape, config, algorithm, device, shrink)
    _import_lazily_loaded(variant)
    clock = time.perf_counter if on_gpu else time.process_time
    peak, key = PeakMemory(), f"memory/gpu{device.index or 0}_peak_mb" if on_gpu else HOST_PEAK
    before = peak.columns().get(key, 0.0)  # the peak of now; none before torch uses the GPU
    torch.manual_seed(0)
    base = Policy(loading.random_model(model_config, device, getattr(torch, dtype)))
    policy, train = loading.trained_policy(base, config), config.train
    pieces = {"micro_tokens": train.micro_tokens, "micro_batch": train.micro_batch}
    step = step_of(algorithm, policy, 0, copied=False, **pieces)
    samples, times = batch.random_samples(shape.vocabulary), []
    for _ in range(STEPS):
        start = clock()
        step(samples, batch.responses)
        times.append(clock() - start)
    return StepCost(peak.columns()[key] - before, needed / 2**20, times[1:], shape.parameters)


def _config(batch: BatchSize, variant: str, dtype: str) -> RunConfig:
    adapter, checkpoints = "lora" if variant == ADAPTER else "none", variant == CHECKPOINTS
    config = batch.config(dtype=dtype, adapter=adapter, checkpoint_activations=checkpoints)
    if variant == MICRO_TOKENS:
        config.train.micro_tokens = int(MICRO_TOKENS_SHARE * batch.tokens)
    return config


def _fit(
    shape: Shape, config: RunConfig, algorithm: Algorithm, device: torch.device, shrink: bool
) -> int:
    """Estimate a step's bytes, without an engine. `shrink` may change `config.train`."""
    free, engine = memory.free_bytes(device), (memory.GENERATION, "the engine's weights")
    while True:
        parts = memory.estimate(shape, config, algorithm.needs, device.type == "cuda")
        needed = sum(size for name, size in parts.items() if name not in engine)
        if needed <= 0.9 * free:
            return needed
        if not shrink or config.train.micro_batch == 1:
            raise TooLargeError(f"needs {needed / 2**30:.1f} GiB, {free / 2**30:.1f} GiB are free")
        config.train.micro_batch //= 2


def _import_lazily_loaded(variant: str) -> None:
    """Import what an adapter and a first optimiser step would: not part of a step's memory."""
    import torch

    from experiments.learner.optimiser import Float32AdamW

    if variant == ADAPTER:
        import peft  # noqa: F401

    weight = torch.nn.Parameter(torch.ones(2))
    weight.sum().backward()
    Float32AdamW([([weight], 0.0)], 0.0).step()


def rows_of(shape: str, costs: Mapping[str, StepCost]) -> Iterator[Row]:
    """Peak, estimate and time of each case, and its peak relative to PPO with its own critic."""
    for case, cost in costs.items():
        name = f"{shape} ({cost.parameters / 1e6:.1f} M), {case}"
        error = max(cost.peak_mib / cost.estimate_mib, cost.estimate_mib / cost.peak_mib)
        yield row(name, "peak memory", [cost.peak_mib], "MiB")
        yield row(name, "estimate", [cost.estimate_mib], "MiB")
        yield row(name, "peak and estimate, larger to smaller", [error], goal=WITHIN)
        yield row(name, "time of a step", cost.seconds, "s")
        if LARGEST in costs and case != LARGEST:
            goal, share = "≤ 1" if "SPO" in case else None, cost.peak_mib / costs[LARGEST].peak_mib
            yield row(name, "peak relative to PPO with its own critic", [share], goal=goal)


if __name__ == "__main__":
    common.command(Options, main)
