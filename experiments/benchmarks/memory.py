"""`make bench-memory`: peak memory and time of a step under each algorithm, against the estimate.

Same model, same batch, same lengths; every measurement in a process of its own, whose growth from
before the model is loaded to its highest mark is what is told (Linux; on a GPU, torch's own mark).
What does not fit into what is free is left out, with its reason.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from experiments.benchmarks import rows
from experiments.benchmarks.rows import Row, row

CASES = (
    "GRPO without KL",
    "GRPO",
    "SPO q0=group",
    "PPO critic=shared",
    "PPO critic=separate",
    "GRPO, adapter",
    "SPO q0=group, adapter",
    "PPO critic=separate, adapter",
    "SPO q0=group, checkpoint_activations",
    "SPO q0=group, micro_tokens",
)
# After a comma: "adapter" is LoRA of the default rank instead of all weights, "micro_tokens" a
# budget of so few of a batch's tokens.
MICRO_TOKENS = 0.25
# name → (Llama's widths or None for the bundled model, prompts, group, prompt and response tokens)
HEADS = {"num_attention_heads": 12, "num_key_value_heads": 12}
SHAPES: dict[str, tuple[dict[str, int] | None, tuple[int, int, int, int]]] = {
    "nano": (None, (16, 8, 48, 48)),
    "100M": (
        {
            "vocab_size": 16384,
            "hidden_size": 768,
            "intermediate_size": 3072,
            "num_hidden_layers": 9,
            **HEADS,
        },
        (2, 4, 48, 48),
    ),
    "500M": (
        {
            "vocab_size": 32768,
            "hidden_size": 1536,
            "intermediate_size": 6144,
            "num_hidden_layers": 12,
            **HEADS,
        },
        (1, 4, 32, 32),
    ),
}
WITHIN = 1.25  # measured peak to estimate, either way
STEPS = 3


def main(argv: Sequence[str] | None = None) -> None:
    """Measure, print, write `bench/memory.json`."""
    options = parse(argv)
    if options.one:
        print(json.dumps(measure(*options.one)))
        return
    found: list[Row] = []
    left_out: dict[str, str] = {}
    for shape in options.shapes:
        measured = {case: alone(shape, case) for case in options.cases}
        left_out |= {f"{shape}, {case}": m["why"] for case, m in measured.items() if "why" in m}
        found += rows_of(shape, {case: m for case, m in measured.items() if "why" not in m})
    rows.show("peak memory and time of a step", found)
    for case, why in left_out.items():
        print(f"left out: {case}: {why}")
    print(f"written to {rows.save('memory', found, options.out, left_out=left_out)}")


def parse(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--shapes", nargs="+", choices=SHAPES, default=list(SHAPES))
    parser.add_argument("--cases", nargs="+", choices=CASES, default=list(CASES))
    parser.add_argument("--out", type=Path, default=rows.FOLDER)
    parser.add_argument("--one", nargs=2, help=argparse.SUPPRESS)
    return parser.parse_args(argv)


def alone(shape: str, case: str) -> dict[str, Any]:
    """One measurement, in a fresh process."""
    command = [sys.executable, "-m", "experiments.benchmarks.memory", "--one", shape, case]
    root = Path(__file__).resolve().parents[2]
    done = subprocess.run(command, cwd=root, stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode:
        return {"why": f"its process ended with {done.returncode}"}
    found = json.loads(done.stdout.splitlines()[-1])
    print(f"{shape}, {case}: {found}", file=sys.stderr)
    return found


def measure(name: str, case: str) -> dict[str, Any]:
    """Peak growth in MiB, the estimate of it, and seconds a step of the fastest of three."""
    import torch

    from experiments.benchmarks.training.workload import algorithms, random_samples, step_of
    from experiments.config.schema import EvalConfig, ModelConfig, RunConfig, TrainConfig
    from experiments.learner import memory
    from experiments.learner.memory_check import free_bytes
    from experiments.policy import loading
    from experiments.run_dir.machine import PeakMemory

    torch.set_num_threads(1)
    widths, (prompts, group, width, length) = SHAPES[name]
    device = loading.pick_device("auto")
    model_config = loading.read_config(ModelConfig())
    if widths is not None:
        model_config = type(model_config)(**widths, head_dim=None, tie_word_embeddings=True)
    config = RunConfig(
        None, model=ModelConfig(), train=TrainConfig(), eval=EvalConfig(kl_samples=0)
    )
    config.train.prompts, config.train.group_size = prompts, group
    config.task.max_prompt_tokens, config.task.max_response_tokens = width, length
    case, _, how = case.partition(", ")
    config.model.adapter = "lora" if how == "adapter" else "none"
    config.model.checkpoint_activations = how == "checkpoint_activations"
    if how == "micro_tokens":
        config.train.micro_tokens = int(MICRO_TOKENS * prompts * (width + group * length))
    algorithm = algorithms()[case]
    shape = memory.shape_of(model_config)
    held = memory.estimate(shape, config, algorithm.needs, device.type == "cuda")
    foreseen = held.without_writing - held.held.get("the engine's weights", 0)  # there is none
    if foreseen > 0.9 * free_bytes(device):
        free = free_bytes(device)
        return {"why": f"needs {foreseen / 2**30:.1f} GiB of {free / 2**30:.1f} GiB that are free"}
    _warm_up(config.model.adapter)
    mark = PeakMemory()
    key = "memory/gpu0_peak_mb" if device.type == "cuda" else "memory/peak_mb"
    before = _resident_mb() if device.type == "cpu" else 0.0
    torch.manual_seed(0)
    model = loading.random_model(model_config, device, torch.float32)
    model, pieces = loading.policy_of(model, config), config.train.micro_tokens
    step = step_of(algorithm, model, 0, copied=False, micro_tokens=pieces)
    samples = random_samples(shape.vocabulary, prompts, group, width, length)
    times = []
    for _ in range(STEPS):
        begin = time.process_time() if device.type == "cpu" else time.perf_counter()
        step(samples, group)
        times.append((time.process_time() if device.type == "cpu" else time.perf_counter()) - begin)
    return {
        "peak_mb": mark.columns()[key] - before,
        "estimate_mb": foreseen / 2**20,
        "step_s": times[1:],
        "parameters": shape.parameters,
    }


def _warm_up(adapter: str) -> None:
    """What an adapter or a first optimiser's step has imported is no part of a step's memory."""
    import torch

    if adapter == "lora":
        import peft  # noqa: F401

    from experiments.learner.optimiser import Float32AdamW

    weight = torch.nn.Parameter(torch.ones(2))
    weight.sum().backward()
    Float32AdamW([([weight], 0.0)], 0.0).step()


def _resident_mb() -> float:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) / 1024
    raise RuntimeError("no VmRSS in /proc/self/status")


def rows_of(shape: str, measured: dict[str, dict[str, Any]]) -> list[Row]:
    """Peak, estimate, time, and each algorithm's ratio to PPO with a critic of its own."""
    found = []
    most = measured.get("PPO critic=separate")
    for case, m in measured.items():
        name = f"{shape} ({m['parameters'] / 1e6:.1f} M), {case}"
        found.append(row(name, "peak memory", [m["peak_mb"]], "MiB"))
        found.append(row(name, "estimate", [m["estimate_mb"]], "MiB"))
        error = max(m["peak_mb"] / m["estimate_mb"], m["estimate_mb"] / m["peak_mb"])
        found.append(row(name, "peak and estimate, larger to smaller", [error], at_most=WITHIN))
        found.append(row(name, "time of a step", m["step_s"], "s"))
        whole = measured.get(case.split(", ")[0])
        if whole is not None and whole is not m:
            found.append(row(name, "peak to the plain step", [m["peak_mb"] / whole["peak_mb"]]))
            times = [one / other for one, other in zip(m["step_s"], whole["step_s"], strict=True)]
            found.append(row(name, "time to the plain step", times))
        elif most is not None and m is not most:
            ratio = [m["peak_mb"] / most["peak_mb"]]
            goal = 1.0 if case.startswith("SPO") else None
            found.append(row(name, "peak to PPO with its own critic", ratio, at_most=goal))
    return found


if __name__ == "__main__":
    main()
