"""`make gpu-check`: what only a GPU can show, in two minutes on one H200; 1.5B takes 95 GiB.

Parts, at two sizes of random weights: the tests that need a GPU, our loop's log-probs against the
learner's in bfloat16, optimiser steps with their rate, MFU and peak memory against the estimate,
tokens a second of our loop, and vLLM colocated where it is installed. A part that fails or lacks
something is said, and the next begins. `small=true` tries every part at tiny shapes on any device.
"""

from __future__ import annotations

import gc
import math
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
import transformers

from envs.problem import Problem
from experiments.benchmarks import common
from experiments.benchmarks.common import ROOT, BatchSize
from experiments.config.composition import config_of
from experiments.config.preflight import vllm_version
from experiments.config.schema import RunConfig
from experiments.engine_check import LogprobCheck
from experiments.engines.base import Engine, Sampling
from experiments.engines.hf import HFEngine
from experiments.errors import command
from experiments.learner import costs
from experiments.policy import loading
from experiments.policy.policy import Policy
from experiments.sample import Completion, PromptedProblem

CUDA_TESTS = "tests/experiments/test_cuda.py"
PEAK_FLOPS = {"H100": 989e12, "H200": 989e12, "A100": 312e12, "L40S": 362e12, "B200": 2250e12}
EOS, PAD, PROMPT_TOKENS = 2, 0, 512
STEPS = ("GRPO without KL", "GRPO", "SPO q0=group_soft", "PPO critic=shared", "PPO critic=separate")
SIZES = (
    *("hidden_size", "intermediate_size", "num_hidden_layers"),
    *("num_attention_heads", "num_key_value_heads", "vocab_size"),
)
SHAPES = {
    "0.5B": ((896, 4864, 24, 14, 2, 151936), STEPS),
    "1.5B": ((1536, 8960, 28, 12, 2, 151936), (STEPS[0], STEPS[2])),
}
TINY = (32, 64, 2, 4, 2, 96)
BUDGET = 330.0  # seconds, after which no part begins


@dataclass
class Options:
    """The command line."""

    small: bool = False  # a trial at tiny shapes, which needs no GPU


@dataclass(frozen=True)
class Bench:
    """Model, batch and device of a part."""

    model: Any  # transformers' configuration
    steps: Sequence[str]
    size: BatchSize
    prompt_tokens: int
    device: torch.device
    rounds: int

    def policy(self) -> Policy:
        """The same random bfloat16 weights each time."""
        torch.manual_seed(0)
        with torch.device(self.device):
            model = transformers.AutoModelForCausalLM.from_config(
                self.model, dtype=torch.bfloat16, attn_implementation="sdpa"
            )
        return Policy(model.eval())

    @property
    def prompted(self) -> list[PromptedProblem]:
        """Prompts of random tokens, the same each time."""
        prompts = random_tokens(self, self.size.prompts, self.prompt_tokens)
        return [PromptedProblem(Problem(f"p{n}", "", (), ()), p) for n, p in enumerate(prompts)]

    def config(self) -> RunConfig:
        """The configuration of a run with such batches."""
        prompts, responses, tokens = self.size
        keys = [
            *("model.dtype=bfloat16", "eval.kl_samples=0"),
            f"task.max_prompt_tokens={self.prompt_tokens}",
            f"task.max_response_tokens={tokens}",
            f"train.prompts={prompts}",
            f"train.group_size={responses}",
            f"engine.batch_size={prompts * responses}",
            f"engine.logprob_check_samples={2 * prompts}",
        ]
        return config_of(keys)


def random_tokens(bench: Bench, rows: int, count: int) -> list[tuple[int, ...]]:
    """Rows of random tokens, the same each time."""
    shape, draw = (rows, count), torch.Generator().manual_seed(0)
    tokens = torch.randint(3, bench.model.vocab_size, shape, generator=draw)
    return list(map(tuple, tokens.tolist()))


def main(options: Options) -> int:
    """Run all parts. Returns 1 if any failed."""
    device, start, failed = loading.pick_device("auto"), time.monotonic(), 0
    loading.set_up_torch(1)
    name = torch.cuda.get_device_name(0) if device.type == "cuda" else "no GPU"
    print(f"{name}, torch {torch.__version__}, transformers {transformers.__version__}", flush=True)
    for size, (shape, steps) in SHAPES.items():
        ends = {"bos_token_id": 1, "eos_token_id": EOS, "pad_token_id": PAD}
        shapes = dict(zip(SIZES, TINY if options.small else shape, strict=True))
        model = transformers.AutoConfig.for_model(
            "qwen2", **shapes, **ends, tie_word_embeddings=True
        )
        bench = Bench(model, steps, BatchSize(16, 8, 256), PROMPT_TOKENS, device, rounds=2)
        if options.small:
            bench = Bench(model, steps, BatchSize(2, 4, 8), 6, device, rounds=1)
        for part in (tests, agree, learn, generate, vllm):
            if part is tests and size != "0.5B":
                continue
            print(f"\n# {part.__name__} {size}, {time.monotonic() - start:.0f} s", flush=True)
            if time.monotonic() - start > BUDGET:
                print("skipped: no time left")
                continue
            try:
                part(bench)
            except Exception as error:
                failed += 1
                print(f"FAILED: {type(error).__name__}: {error}", flush=True)
            clear(device)
    print(f"\n{time.monotonic() - start:.0f} s, {failed} parts failed")
    return min(1, failed)


def clear(device: torch.device) -> None:
    """Free what a part has left behind."""
    gc.collect()
    if device.type == "cuda":
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()


def tests(bench: Bench) -> None:
    """What is the same on a GPU as on a CPU."""
    if bench.device.type != "cuda":
        print("skipped: no GPU here")
        return
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", CUDA_TESTS]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    print("\n".join(done.stdout.splitlines()[-15:]))
    if done.returncode:
        raise RuntimeError(f"{CUDA_TESTS} ended with {done.returncode}")


def agree(bench: Bench, engine: Engine | None = None) -> None:
    """An engine's log-probs, by default our loop's, against the learner's."""
    engine = engine or HFEngine(bench.policy(), {EOS}, PAD, 4096)
    config, algorithm = bench.config(), common.algorithms()[STEPS[0]]
    for temperature in (1.0, 0.7):
        config.train.temperature = temperature
        learner = common.learner_of(algorithm, engine.policy, PAD, False, temperature=temperature)
        found = LogprobCheck(config, engine, learner, bench.prompted).check(0)
        print(
            f"temperature {temperature:g}: mean difference {found.mean:.4f} nats "
            f"(at most {found.bound:g}), greatest {found.max:.3f}",
            flush=True,
        )
        if not found.mean <= found.bound:
            raise RuntimeError("the engine and the learner disagree")


def learn(bench: Bench) -> None:
    """A step of each algorithm on random responses of the greatest length."""
    count, entropy = bench.size.max_tokens, math.log(bench.model.vocab_size)
    completions = [
        Completion(tokens, (-entropy,) * count, entropy, True, 0)
        for tokens in random_tokens(bench, bench.size.prompts * bench.size.responses, count)
    ]
    samples, config = common.rewarded(bench.prompted, completions), bench.config()
    trained_tokens = bench.size.prompts * (bench.prompt_tokens + bench.size.responses * count)
    for name in bench.steps:
        algorithm, policy = common.algorithms()[name], bench.policy()
        policy.model.requires_grad_(True)
        pieces = {"micro_batch": config.train.micro_batch}
        learner = common.learner_of(algorithm, policy, PAD, False, **pieces)
        seconds = []
        for _ in range(1 + bench.rounds):
            timer = common.start_timer()
            learner.update(samples, bench.size.responses, None)  # its metrics wait for the GPU
            seconds.append(timer()["wall time"])
        rate = trained_tokens / min(seconds[1:])
        text = f"{name}: {min(seconds[1:]):.2f} s a step, {rate:,.0f} tokens/s"
        if bench.device.type == "cuda":
            peak = torch.cuda.max_memory_allocated()
            parts = costs.estimate(bench.model, config, algorithm.needs, on_gpu=True)
            needed, parameters = sum(parts.values()), policy.model.num_parameters()
            gpu = torch.cuda.get_device_name(0)
            flops = next((f for card, f in PEAK_FLOPS.items() if card in gpu), math.nan)
            text += f", MFU {6 * parameters * rate / flops:.0%}, peak {peak / 2**30:.1f} GiB"
            text += f", {peak / needed:.2f} of the estimate"
        print(text, flush=True)
        del learner, policy
        clear(bench.device)


def generate(bench: Bench, engine: Engine | None = None) -> None:
    """Tokens a second of an engine, by default our loop, in which no response ends early."""
    prompts, sampling = [p.tokens for p in bench.prompted], Sampling(bench.size.max_tokens)
    statics = () if engine else (False, True)
    loops = [HFEngine(bench.policy(), set(), PAD, 4096, static) for static in statics]
    for each in [engine] if engine else loops:
        rates = [
            common.engine_rate(each, prompts, bench.size.responses, sampling, number)["generation"]
            for number in range(1 + bench.rounds)
        ]
        static = getattr(each, "static_cache", False)
        print(f"{each.name}, {static=}: {max(rates[1:]):,.0f} tokens/s", flush=True)


def vllm(bench: Bench) -> None:
    """vLLM colocated: tokens a second, agreement, weight sync, memory freed by its sleep."""
    if vllm_version() is None or bench.device.type != "cuda":
        print("skipped: no vLLM or no GPU here")
        return
    from experiments.engines.vllm import Host, VLLMEngine

    policy = bench.policy()
    with tempfile.TemporaryDirectory() as folder:
        bench.model.save_pretrained(folder)  # only the shape: the weights are ours
        config = bench.config()
        config.model = replace(config.model, path=folder)
        config.engine = replace(config.engine, name="vllm", colocate=True)
        engine = VLLMEngine(Host(config, policy), policy, {EOS})
        generate(bench, engine)
        asleep = torch.cuda.mem_get_info()[0]
        agree(bench, engine)
        with torch.no_grad():
            for parameter in policy.model.parameters():
                parameter.add_(torch.randn_like(parameter) * 0.1 * parameter.std())
        policy.version += 1
        seconds = common.start_timer()
        engine.sync(policy)
        torch.cuda.synchronize(bench.device)
        print(f"weight sync, wake-up included: {seconds()['wall time']:.2f} s")
        print(f"asleep: {(asleep - torch.cuda.mem_get_info()[0]) / 2**30:.1f} GiB more are free")
        agree(bench, engine)


if __name__ == "__main__":
    command(Options, main)
