"""`make bench-generate`: tokens per second of our sampling loop, transformers' `generate` and vLLM.

All sample from the same weights for the same prompts at the same temperature, in turn, in one
process. Tokens count up to and including EOS. vLLM takes part where it is installed; it starts
every round without a prefix cache, as after a weight sync.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, cast

from pydantic import PositiveFloat, PositiveInt

from experiments.benchmarks import common
from experiments.benchmarks.common import Row, alternate, compare, row
from experiments.benchmarks.workload import (
    MiniContests,
    generate_responses,
    generation_rate,
    padded,
)
from experiments.config.dependencies import VLLM_RELEASE, vllm_version
from experiments.config.schema import EngineConfig, ModelConfig, RunConfig
from experiments.engines.base import Engine, Sampling
from experiments.engines.vllm import Host, VLLMEngine

if TYPE_CHECKING:
    from experiments.engines.hf import HFEngine


@dataclass
class Options(common.Options):
    rounds: PositiveInt = 7
    model: str = "assets/nano"  # a folder or hub id
    dtype: Literal["float32", "bfloat16"] = "float32"  # of the weights
    prompts: PositiveInt = 16  # generated for at once
    responses: PositiveInt = 8  # to each prompt
    max_tokens: PositiveInt = 64  # of a response
    temperature: PositiveFloat = 1.0  # of sampling
    top_p: PositiveFloat = 1.0  # share of the probability that is sampled


def main(options: Options) -> None:
    """Measure and write `generate.json`."""
    import torch

    torch.set_num_threads(1)
    model = ModelConfig(path=options.model, dtype=options.dtype)
    mini = MiniContests.load(model, options.prompts)
    ours, engines = mini.engine, dict[str, Engine](ours=mini.engine)
    if vllm_version() == VLLM_RELEASE:
        mini.task.max_response_tokens = options.max_tokens
        batch = EngineConfig(batch_size=options.prompts * options.responses)
        config = RunConfig(algo=None, task=mini.task, model=model, engine=batch)
        eos = set(ours.eos.tolist())
        engines["vLLM"] = VLLMEngine(Host(config, ours.policy), ours.policy, eos)
    else:
        print(f"no vLLM {VLLM_RELEASE} here; `make test-vllm` builds one")
    rows = measure(options, engines, mini.prompts)
    for name, engine in engines.items():
        same = same_greedy_tokens(engine, ours, mini.prompts, options.max_tokens)
        rows.append(row(name, "greedy responses equal to generate's", [same]))
    common.finish("generate", rows, options.out)


def measure(
    options: Options, engines: Mapping[str, Engine], prompts: Sequence[Sequence[int]]
) -> list[Row]:
    """Tokens per second of transformers' `generate` on our engine's model, and of all engines."""
    sampling = Sampling(options.max_tokens, options.temperature, options.top_p)
    ours = cast("HFEngine", engines["ours"])

    def transformers_rate(number: int) -> dict[str, float]:
        draws = {"temperature": options.temperature, "top_p": options.top_p, "top_k": 0}
        draws |= {"do_sample": True, "max_new_tokens": options.max_tokens}
        return generation_rate(lambda: _transformers(ours, prompts, options.responses, **draws))

    def engine_rate(engine: Engine, number: int) -> dict[str, float]:
        if isinstance(engine, VLLMEngine):
            engine.host.llm.reset_prefix_cache()
        generate = partial(generate_responses, engine, prompts, options.responses, sampling, number)
        return generation_rate(lambda: [each.tokens for each in generate()])

    cases: dict[str, Callable[[int], dict[str, float]]] = {"generate": transformers_rate}
    cases |= {name: partial(engine_rate, engine) for name, engine in engines.items()}
    return compare(alternate(cases, options.rounds), "tokens/s", baseline="generate")


def _transformers(
    engine: HFEngine, prompts: Sequence[Sequence[int]], responses: int, **options: object
) -> list[list[int]]:
    """Responses of transformers' `generate` to left-padded prompts, cut after EOS."""
    import torch

    ids = padded([prompt for prompt in prompts for _ in range(responses)], "left")
    ids = ids.to(engine.model.device)
    model: Any = engine.model  # of transformers
    inputs = {"input_ids": ids.clamp(min=0), "attention_mask": (ids >= 0).long()}
    with torch.inference_mode():
        output = model.generate(**inputs, pad_token_id=engine.pad, **options)
    eos = set(engine.eos.tolist())
    rows = output[:, ids.shape[1] :].tolist()
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
