"""`make bench-memory`: peak memory and time of a step of each algorithm, against the estimate.

Model, batch and lengths are the same for all. Each measurement is the growth of a process of its
own, from before the model is loaded to its peak (on a GPU: torch's own). Cases that do not fit into
free memory are left out.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import torch

from algorithms.base import Algorithm
from experiments.benchmarks import common
from experiments.benchmarks.common import Row, ratios, row, run_process
from experiments.benchmarks.workload import BatchShape, algorithms, llama_sizes, step_of
from experiments.config.schema import ModelConfig, RunConfig
from experiments.learner import memory
from experiments.learner.memory_check import free_bytes
from experiments.learner.optimiser import Float32AdamW
from experiments.policy import loading
from experiments.policy.policy import Policy
from experiments.run_dir.machine import PeakMemory
from experiments.studies.cli import choose

ADAPTER, CHECKPOINTS, MICRO_TOKENS = "adapter", "checkpoint_activations", "micro_tokens"
CASES = (
    *("GRPO without KL", "GRPO", "SPO q0=group", "PPO critic=shared", "PPO critic=separate"),
    *(f"{name}, {ADAPTER}" for name in ("GRPO", "SPO q0=group", "PPO critic=separate")),
    *(f"SPO q0=group, {CHECKPOINTS}", f"SPO q0=group, {MICRO_TOKENS}"),
)
MICRO_TOKENS_SHARE = 0.25  # of a batch's tokens
SHAPES: dict[str, tuple[dict[str, int] | None, BatchShape]] = {  # None: the bundled model
    "nano": (None, BatchShape(16, 8, 48, 48)),
    "100M": (llama_sizes(768, 3072, 9, 12, 12, 16384), BatchShape(2, 4, 48, 48)),
    "500M": (llama_sizes(1536, 6144, 12, 12, 12, 32768), BatchShape(1, 4, 32, 32)),
}
WITHIN = 1.25  # goal of measured peak to estimate, either way
STEPS = 3


@dataclass
class Options(common.Options):
    shapes: str | None = None  # of SHAPES, separated by commas
    cases: str | None = None  # of CASES, separated by semicolons
    child: bool = False  # measure one case in this process


def main(options: Options) -> None:
    """Measure and write `memory.json`."""
    cases = choose("cases", options.cases, CASES, separator=";")
    shapes = choose("shapes", options.shapes, list(SHAPES))
    if options.child:
        print(json.dumps(measure(shapes[0], cases[0])))
        return
    rows: list[Row] = []
    left_out: dict[str, str] = {}
    for shape in shapes:
        results = {case: _measure_in_child(shape, case) for case in cases}
        left_out |= {f"{shape}, {c}": r["why"] for c, r in results.items() if "why" in r}
        rows += rows_of(shape, {c: r for c, r in results.items() if "why" not in r})
    common.finish("memory", rows, options.out, left_out=left_out)


def _measure_in_child(shape: str, case: str) -> dict[str, Any]:
    module = ("-m", "experiments.benchmarks.memory")
    try:
        output = run_process((*module, f"shapes={shape}", f"cases={case}", "child=true")).output
    except subprocess.CalledProcessError as error:
        return {"why": f"its process ended with {error.returncode}"}
    print(f"{shape}, {case}: {output.splitlines()[-1]}", file=sys.stderr)
    return json.loads(output.splitlines()[-1])


def measure(shape_name: str, case: str) -> dict[str, Any]:
    """Measure a case on one of SHAPES, in float32."""
    sizes, batch = SHAPES[shape_name]
    model_config: Any = loading.read_config(ModelConfig())
    if sizes:
        model_config = type(model_config)(**sizes, head_dim=None, tie_word_embeddings=True)
    return measure_step(model_config, batch, case, "float32")


def measure_step(
    model_config: Any,
    batch: BatchShape,
    case: str,
    dtype: Literal["float32", "bfloat16"],
    shrink: bool = False,
) -> dict[str, Any]:
    """Peak growth in MiB, its estimate, and the seconds of each step.

    If the estimate exceeds free memory, `shrink` halves the micro-batch. If nothing fits, the
    result is {"why": reason}.
    """
    torch.set_num_threads(1)
    name, _, variant = case.partition(", ")
    device, algorithm = loading.pick_device("auto"), algorithms()[name]
    on_gpu = device.type == "cuda"
    config = _config(batch, variant, dtype)
    shape, free = memory.shape_of(model_config), free_bytes(device)
    while (needed := _step_bytes(shape, config, algorithm, on_gpu)) > 0.9 * free:
        if not shrink or config.train.micro_batch == 1:
            why = f"needs {needed / 2**30:.1f} GiB of {free / 2**30:.1f} GiB that are free"
            return {"why": why}
        config.train.micro_batch //= 2
    _import_lazily_loaded(variant)
    clock = time.perf_counter if on_gpu else time.process_time
    peak, before = PeakMemory(), 0.0 if on_gpu else _resident_mib()
    torch.manual_seed(0)
    base = Policy(loading.random_model(model_config, device, getattr(torch, dtype)))
    policy, pieces = loading.trained_policy(base, config), config.train
    step = step_of(
        algorithm,
        policy,
        0,
        copied=False,
        micro_tokens=pieces.micro_tokens,
        micro_batch=pieces.micro_batch,
    )
    samples, times = batch.samples(shape.vocabulary), []
    for _ in range(STEPS):
        start = clock()
        step(samples, batch.group_size)
        times.append(clock() - start)
    key = f"memory/gpu{device.index or 0}_peak_mb" if on_gpu else "memory/peak_mb"
    return {
        "peak_mib": peak.columns()[key] - before,
        "estimate_mib": needed / 2**20,
        "step_s": times[1:],
        "parameters": shape.parameters,
    }


def _config(batch: BatchShape, variant: str, dtype: str) -> RunConfig:
    config = batch.config(
        dtype=dtype,
        adapter="lora" if variant == ADAPTER else "none",
        checkpoint_activations=variant == CHECKPOINTS,
    )
    if variant == MICRO_TOKENS:
        config.train.micro_tokens = int(MICRO_TOKENS_SHARE * batch.tokens)
    return config


def _step_bytes(shape: memory.Shape, config: RunConfig, algorithm: Algorithm, on_gpu: bool) -> int:
    """The estimate without an engine, which this benchmark has not."""
    estimate = memory.estimate(shape, config, algorithm.needs, on_gpu)
    return estimate.without_generation - estimate.held.get("the engine's weights", 0)


def _import_lazily_loaded(variant: str) -> None:
    """Import what an adapter and a first optimiser step would: not part of a step's memory."""
    if variant == ADAPTER:
        import peft  # noqa: F401

    weight = torch.nn.Parameter(torch.ones(2))
    weight.sum().backward()
    Float32AdamW([([weight], 0.0)], 0.0).step()


def _resident_mib() -> float:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) / 1024 for line in lines if line.startswith("VmRSS:"))


def rows_of(shape: str, results: Mapping[str, Mapping[str, Any]]) -> list[Row]:
    """Peak, estimate and time; ratios to the plain step of a variant, or to PPO's own critic."""
    rows = []
    for case, result in results.items():
        name = f"{shape} ({result['parameters'] / 1e6:.1f} M), {case}"
        peak, estimate = result["peak_mib"], result["estimate_mib"]
        error = max(peak / estimate, estimate / peak)
        rows.append(row(name, "peak memory", [peak], "MiB"))
        rows.append(row(name, "estimate", [estimate], "MiB"))
        rows.append(row(name, "peak and estimate, larger to smaller", [error], at_most=WITHIN))
        rows.append(row(name, "time of a step", result["step_s"], "s"))
        plain, largest = results.get(case.split(", ")[0]), results.get("PPO critic=separate")
        if plain is not None and plain is not result:
            rows.append(row(name, "peak to the plain step", [peak / plain["peak_mib"]]))
            times = ratios(result["step_s"], plain["step_s"])
            rows.append(row(name, "time to the plain step", times))
        elif largest is not None and largest is not result:
            goal = 1.0 if case.startswith("SPO") else None
            ratio = [peak / largest["peak_mib"]]
            rows.append(row(name, "peak to PPO with its own critic", ratio, at_most=goal))
    return rows


if __name__ == "__main__":
    common.command(Options, main)
