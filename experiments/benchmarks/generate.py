"""`make bench-generate`: tokens per second of our sampling loop, transformers' `generate` and vLLM.

All sample from the same weights for the same prompts at the same temperature, in turn, in one
process. Tokens count up to and including EOS. vLLM takes part where it is installed; it starts
every round without a prefix cache, as after a weight sync.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch
from pydantic import PositiveFloat, PositiveInt

from envs.tasks import open_task
from envs.tasks.task_cli import task_config
from experiments.benchmarks import common
from experiments.benchmarks.common import ratios, row
from experiments.benchmarks.workload import engine_tokens, padded
from experiments.config.dependencies import VLLM_RELEASE, vllm_version
from experiments.config.schema import EngineConfig, ModelConfig, RunConfig
from experiments.engines.base import Engine, Sampling
from experiments.engines.hf import HFEngine
from experiments.engines.vllm import Host, VLLMEngine
from experiments.policy import loading
from experiments.rollout.prompts import encode_prompts


@dataclass
class Options(common.Options):
    rounds: PositiveInt = 7
    model: str = "assets/nano"  # a folder or hub id
    dtype: Literal["float32", "bfloat16"] = "float32"
    prompts: PositiveInt = 16
    responses: PositiveInt = 8  # to each prompt
    max_tokens: PositiveInt = 64
    temperature: PositiveFloat = 1.0
    top_p: PositiveFloat = 1.0


def main(options: Options) -> None:
    """Measure and write `generate.json`."""
    torch.set_num_threads(1)
    task = task_config(["task=mini", f"task.train_problems={options.prompts}"])
    task.max_response_tokens = options.max_tokens
    config = RunConfig(
        algo=None,
        task=task,
        model=ModelConfig(path=options.model, dtype=options.dtype),
        engine=EngineConfig(batch_size=options.prompts * options.responses),
    )
    policy, tokenizer = loading.load(config.model)
    task.chat = bool(tokenizer.chat_template)
    problems = open_task(task)
    encoded, _ = encode_prompts(problems.train, problems, tokenizer, task, {})
    eos = loading.end_tokens(policy.model, tokenizer)
    engines: dict[str, Engine] = {"ours": HFEngine(policy, eos, tokenizer.pad_token_id, 4096)}
    if vllm_version() == VLLM_RELEASE:
        engines["vLLM"] = VLLMEngine(Host(config, policy), policy, eos)
    else:
        print(f"no vLLM {VLLM_RELEASE} here; `make test-vllm` builds one")
    measure(options, engines, [prompt.tokens for prompt in encoded])


def measure(options: Options, engines: dict[str, Engine], prompts: Sequence[Sequence[int]]) -> None:
    """Time all engines in turn. The first round warms up and is not counted."""
    ours = engines["ours"]
    sampling = Sampling(options.max_tokens, options.temperature, options.top_p)
    assert isinstance(ours, HFEngine)
    rates: dict[str, list[float]] = {name: [] for name in ("ours", "generate", *engines)}
    for number in range(options.rounds + 1):
        for name, values in rates.items():
            if isinstance(engine := engines.get(name), VLLMEngine):
                engine.host.llm.reset_prefix_cache()
            start = time.perf_counter()
            if engine is None:
                tokens = _transformers_tokens(ours, prompts, options.responses, sampling)
            else:
                tokens = engine_tokens(engine, prompts, options.responses, sampling, number)
            values.append(tokens / (time.perf_counter() - start))
    rates = {name: values[1:] for name, values in rates.items()}
    rows = [row(name, "generation", values, "tokens/s") for name, values in rates.items()]
    for name, engine in engines.items():
        same = same_greedy_tokens(engine, ours, prompts, options.max_tokens)
        rows.append(row(name, "to generate", ratios(rates[name], rates["generate"])))
        rows.append(row(name, "greedy responses equal to generate's", [same]))
    common.finish("generate", rows, options.out)


def _transformers_tokens(
    engine: HFEngine, prompts: Sequence[Sequence[int]], responses: int, sampling: Sampling
) -> int:
    options = {"temperature": sampling.temperature, "top_p": sampling.top_p, "top_k": 0}
    options["max_new_tokens"] = sampling.max_tokens
    return sum(map(len, _transformers(engine, prompts, responses, do_sample=True, **options)))


def _transformers(
    engine: HFEngine, prompts: Sequence[Sequence[int]], responses: int, **options: object
) -> list[list[int]]:
    """Responses of transformers' `generate` to left-padded prompts, cut after EOS."""
    repeated = [list(prompt) for prompt in prompts for _ in range(responses)]
    tensors = {
        "input_ids": padded(repeated, engine.pad, "left"),
        "attention_mask": padded([[1] * len(prompt) for prompt in repeated], 0, "left"),
    }
    model: Any = engine.model  # of transformers
    tensors = {key: tensor.to(model.device) for key, tensor in tensors.items()}
    with torch.inference_mode():
        output = model.generate(**tensors, pad_token_id=engine.pad, **options)
    eos = set(engine.eos.tolist())
    rows = output[:, tensors["input_ids"].shape[1] :].tolist()
    return [row[: next((i + 1 for i, t in enumerate(row) if t in eos), len(row))] for row in rows]


def same_greedy_tokens(
    engine: Engine, reference: HFEngine, prompts: Sequence[Sequence[int]], max_tokens: int
) -> float:
    """Share of prompts whose greedy response is that of `generate` on `reference`'s model."""
    ours = engine.generate(prompts, [[0]] * len(prompts), Sampling(max_tokens, temperature=0))
    theirs = _transformers(reference, prompts, 1, do_sample=False, max_new_tokens=max_tokens)
    return statistics.fmean(
        list(group[0].tokens) == row for group, row in zip(ours, theirs, strict=True)
    )


if __name__ == "__main__":
    common.command(Options, main)
