"""`make gpu-check`: everything that only a GPU can show, in under nine minutes on 80 GB.

Every part is a function from a model at one size to rows of results, and runs in a process of its
own, within the remaining time. A part that cannot run, for want of vLLM, memory, time or a GPU, is
reported with its reason; the rows of a part that is stopped halfway are kept. `small=true` tries
every part at tiny shapes, in this process, on any device. `model=NAME` tries that model instead of
random weights of three sizes. Results: `gpu.json` and `gpu.md`.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import PositiveFloat

from experiments.benchmarks import common, memory, workload
from experiments.benchmarks.common import Row, row
from experiments.benchmarks.workload import BatchSize, llama_sizes
from experiments.config.preflight import VLLM_RELEASE, vllm_version
from experiments.engines.base import Engine, Sampling
from experiments.engines.vllm import Host, VLLMEngine
from experiments.policy.policy import Policy

if TYPE_CHECKING:
    import torch

CUDA_TESTS = "tests/experiments/test_cuda.py"
NO_GPU = "no GPU: a trial at tiny shapes, whose figures mean nothing"
PEAK_FLOPS = {"H100": 989e12, "H200": 989e12, "A100": 312e12, "L40S": 362e12, "B200": 2250e12}
EOS, PAD = 2, 0
ALGORITHMS = ("GRPO without KL", "GRPO", "SPO q0=group", "PPO critic=shared", "PPO critic=separate")
EXTREMES = (ALGORITHMS[0], ALGORITHMS[-1])  # the least and the most that a step needs
LARGE = BatchSize(16, 8, 256, 512)
SIZES: dict[str, tuple[str, dict[str, Any], BatchSize]] = {  # transformers' kind, sizes, batch
    "0.5B": ("qwen2", llama_sizes(896, 4864, 24, 14, 2, 151936), LARGE),
    "1.5B": ("qwen2", llama_sizes(1536, 8960, 28, 12, 2, 151936), LARGE),
    "8B": ("llama", llama_sizes(4096, 14336, 32, 32, 8, 128256), BatchSize(8, 8, 256, 512)),
}
TINY, TINY_BATCH = llama_sizes(32, 64, 2, 4, 2, 96), BatchSize(2, 4, 6, 8)


@dataclass
class Options:
    """The command line."""

    # of conf/model, a folder, a .gguf file or a hub id; null: random weights of three sizes
    model: str | None = None
    small: bool = False  # a trial at tiny shapes, which needs no GPU
    budget: PositiveFloat = 510.0  # seconds for all parts
    out: Path = common.FOLDER / "gpu"  # folder of the results


def main(options: Options) -> int:
    """Run all parts and write the page. Returns 1 if any failed."""
    if options.model:
        workload.usable_model(options.model)
    import torch

    start, skipped, failed = time.monotonic(), dict[str, str](), dict[str, str]()
    options.out.mkdir(parents=True, exist_ok=True)
    lines = options.out / "rows.jsonl"
    lines.write_text("")
    for key in planned(options.model):
        remaining = options.budget - (time.monotonic() - start)
        print(key, flush=True)
        try:
            if remaining < 5:
                raise SkippedError(f"no time left of {options.budget:.0f} s")
            in_process = partial(common.in_new_process, run_part, timeout_s=remaining)
            (run_part if options.small else in_process)(key, options.small, lines)
        except TimeoutError:
            skipped[key] = f"not done within the remaining {remaining:.0f} s"
        except SkippedError as reason:
            skipped[key] = str(reason)
        except Exception as error:
            failed[key] = f"{type(error).__name__}: {error}"
    rows = [Row(**json.loads(line)) for line in lines.read_text().splitlines()]
    device = torch.cuda.get_device_name(0) if torch.cuda.is_available() else NO_GPU
    facts = {"device": device, "seconds": round(time.monotonic() - start)}
    common.finish("gpu", rows, options.out, **facts, skipped=skipped, failed=failed)
    return min(1, len(failed))


class SkippedError(Exception):
    """The reason why a part cannot run here."""


@dataclass
class Bench:
    """Model, batch and device of a part."""

    model_config: Any
    batch: BatchSize
    device: torch.device
    folder: Path  # for what a part must put on disk
    rounds: int
    own: workload.MiniContests | None = None  # the model's own weights, prompts; None: random ones
    algorithms: Sequence[str] = ALGORITHMS

    def __post_init__(self) -> None:
        drawn = self.batch.random_prompts(self.model_config.vocab_size)
        self.prompted = self.own.prompted if self.own else drawn
        self.prompts = [prompt.tokens for prompt in self.prompted]
        self.ends = self.own.ends if self.own else {EOS}  # the tokens that end a response

    def policy(self) -> Policy:
        """The model's bfloat16 weights, or the same random ones each time."""
        import torch

        from experiments.policy import loading

        if self.own:
            return self.own.engine.policy
        torch.manual_seed(0)
        return Policy(loading.random_model(self.model_config, self.device, torch.bfloat16))

    def our_engine(self, policy: Policy, ends: set[int]) -> Engine:
        from experiments.engines.hf import HFEngine

        return HFEngine(policy, ends, PAD, 4096)

    def free_mib(self) -> float:
        from experiments.learner.memory import free_bytes

        return free_bytes(self.device) / 2**20


def run_tests(bench: Bench) -> Iterator[Row]:
    """The tests that need CUDA."""
    if bench.device.type != "cuda":
        raise SkippedError("no GPU here")
    command, seconds = [sys.executable, "-m", "pytest", "-q", CUDA_TESTS], common.start_timer()
    done = subprocess.run(command, cwd=common.ROOT, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError("\n".join(done.stdout.splitlines()[-15:]))
    yield row(done.stdout.splitlines()[-1], "time", [seconds()["wall time"]], "s")


def generate(bench: Bench) -> list[Row]:
    """Tokens a second of our loop. No response ends early."""
    return _generate(bench, bench.our_engine(bench.policy(), set()), "our loop, bfloat16")


def _generate(bench: Bench, engine: Engine, case: str) -> list[Row]:
    size, sampling = bench.batch.responses, Sampling(bench.batch.max_tokens)
    rate = partial(workload.engine_rate, engine, bench.prompts, size, sampling)
    return common.compare(common.alternate({case: rate}, bench.rounds), "tokens/s")


def learn(bench: Bench) -> Iterator[Row]:
    """A step of each algorithm, with an adapter where the whole model does not fit."""
    model, batch = bench.model_config, bench.batch
    for name in bench.algorithms:
        for case in (name, f"{name}, {memory.ADAPTER}"):
            try:
                cost = memory.measure_step(model, batch, case, "bfloat16", shrink=True)
            except memory.TooLargeError as reason:
                yield row(f"{case}: {reason}", "free memory", [bench.free_mib()], "MiB")
            else:
                yield from _learn_rows(bench, case, cost)
                break


def _learn_rows(bench: Bench, case: str, cost: memory.StepCost) -> Iterator[Row]:
    """Time, tokens a second, MFU, and peak memory against the estimate."""
    import torch

    rates = [bench.batch.tokens / seconds for seconds in cost.seconds]
    yield row(case, "time of a step", cost.seconds, "s")
    yield row(case, "rate", rates, "tokens/s")
    if bench.device.type != "cuda":
        return
    gpu = torch.cuda.get_device_name(bench.device)
    if flops := next((flops for name, flops in PEAK_FLOPS.items() if name in gpu), None):
        # Operations a parameter and token, forward and backward; an adapter's base has no weight
        # gradients. Passes without gradient are not counted.
        operations = 4 if memory.ADAPTER in case else 6
        yield row(case, "MFU", [operations * cost.parameters * rate / flops for rate in rates])
    yield row(case, "peak memory", [cost.peak_mib], "MiB")
    share = cost.peak_mib / cost.estimate_mib
    yield row(case, "peak relative to the estimate", [share], goal="≤ 1.15")


def agree(bench: Bench) -> Iterator[Row]:
    """Our loop's log-probs against the learner's, in bfloat16."""
    policy = bench.policy()
    return _agree(bench, policy, bench.our_engine(policy, bench.ends), "our loop")


def _agree(bench: Bench, policy: Policy, engine: Engine, name: str) -> Iterator[Row]:
    from experiments.engine_check import LogprobCheck

    config, algorithm = bench.batch.config(dtype="bfloat16"), workload.algorithms()[ALGORITHMS[0]]
    config.engine.logprob_check_samples = 2 * len(bench.prompts)
    for temperature in (1.0, 0.7):
        config.train.temperature = temperature
        step = workload.step_of(algorithm, policy, PAD, copied=False, temperature=temperature)
        found = LogprobCheck(config, engine, step.learner, bench.prompted).check(0)
        case = f"{name} against the learner, temperature {temperature:g}"
        yield row(case, "mean difference", [found.mean], "nats", f"≤ {found.bound:g}")
        yield row(case, "greatest difference", [found.max], "nats")


def vllm(bench: Bench) -> Iterator[Row]:
    """vLLM colocated: tokens a second, agreement, weight sync, memory freed by its sleep."""
    if (version := vllm_version()) != VLLM_RELEASE:
        raise SkippedError(f"vLLM {VLLM_RELEASE} is needed, here is {version or 'none'}")
    if bench.device.type != "cuda":
        raise SkippedError("no GPU here; `make test-vllm` tests vLLM without one")
    import torch

    policy = bench.policy()
    bench.model_config.save_pretrained(bench.folder)  # only the shape: the weights are ours
    config = bench.batch.config(dtype="bfloat16", path=str(bench.folder))
    config.engine.name, config.engine.colocate = "vllm", True
    engine = VLLMEngine(Host(config, policy), policy, bench.ends)
    yield from _generate(bench, engine, "vLLM, colocated, until EOS")
    asleep = bench.free_mib()
    yield from _agree(bench, policy, engine, "vLLM")
    with torch.no_grad():
        for parameter in policy.model.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.1 * parameter.std())
    policy.version += 1
    seconds = common.start_timer()
    engine.sync(policy)
    torch.cuda.synchronize(bench.device)
    synced_s, freed = seconds()["wall time"], asleep - bench.free_mib()
    yield row("vLLM, colocated", "weight sync, wake-up included", [synced_s], "s")
    yield row("vLLM, asleep", "more GPU memory free", [freed], "MiB")
    yield from _agree(bench, policy, engine, "vLLM with other weights")


# name → (part, its sizes); the most important first, should time run out
PARTS: dict[str, tuple[Callable[[Bench], Iterator[Row] | list[Row]], tuple[str, ...]]] = {
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


def run_part(key: str, small: bool, lines: Path) -> None:
    """Append the rows of one part to this file. Raises SkippedError if it cannot run here."""
    from experiments.policy import loading

    name, _, size = key.partition(" ")
    device = loading.pick_device("auto")
    if device.type == "cpu" and not small:
        raise SkippedError("no GPU here; ARGS=small=true tries the parts at tiny shapes")
    loading.set_up_torch(1)
    with tempfile.TemporaryDirectory() as folder, lines.open("a") as file:
        for each in PARTS[name][0](make_bench(size, small, device, Path(folder))):
            print(json.dumps(asdict(each) | {"case": f"{key}: {each.case}"}), file=file, flush=True)


def make_bench(size: str, small: bool, device: torch.device, folder: Path) -> Bench:
    """A model of this size, or a tiny one of its kind, or the model of this name."""
    import transformers

    rounds = 1 if small else 3
    kind, sizes, batch = SIZES.get(size, ("", {}, LARGE))
    if small:
        sizes, batch = TINY, TINY_BATCH
    if size not in SIZES:
        own = workload.MiniContests.load(workload.model_config(size, "bfloat16"), batch)
        return Bench(own.engine.policy.model.config, batch, device, folder, rounds, own)
    settings = {"bos_token_id": 1, "eos_token_id": EOS, "pad_token_id": PAD}
    settings["tie_word_embeddings"] = kind == "qwen2"
    shape = transformers.AutoConfig.for_model(kind, **sizes, **settings)
    names = ALGORITHMS if size == "0.5B" else EXTREMES  # all of them take too long at larger sizes
    return Bench(shape, batch, device, folder, rounds, algorithms=names)


if __name__ == "__main__":
    common.command(Options, main)
