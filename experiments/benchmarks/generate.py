"""`make bench which=generate`: tokens per second of our sampling loop, transformers' and vLLM's.

All sample from the same weights for the same prompts at temperature 1, in turn, in one process.
Tokens count up to and including EOS. vLLM takes part where it is installed; it starts every round
without a prefix cache, as after a weight sync. The bare forward pass is what no loop of this model
can do without: a token of every row at a time, nothing sampled, prompts not counted.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import torch

from experiments.benchmarks import common
from experiments.benchmarks.common import MiniContests, ModelOptions, padded
from experiments.config.composition import config_of
from experiments.config.preflight import vllm_version
from experiments.engines.base import Engine, Sampling
from experiments.engines.hf import HFEngine
from experiments.errors import command


def main(options: ModelOptions) -> None:
    """Measure and print."""
    torch.set_num_threads(1)
    model = common.model_config(options.model, options.dtype)
    mini = MiniContests.load(model)
    title = f"Generation: {options.model}, {options.dtype}, {mini.size} tokens"
    sampling = Sampling(mini.size.max_tokens)

    def rate(engine: Engine, number: int) -> dict[str, float]:
        if engine is not mini.engine:
            engine.host.llm.reset_prefix_cache()  # type: ignore[attr-defined]
        return common.engine_rate(engine, mini.prompts, mini.size.responses, sampling, number)

    cases: dict[str, Callable[[int], dict[str, float]]] = {
        "bare forward": partial(bare_rate, mini),
        "generate": partial(generate_rate, mini),
        "ours": partial(rate, mini.engine),
    }
    engines: dict[str, Engine] = {"ours": mini.engine}
    if vllm_version():
        from experiments.engines.vllm import Host, VLLMEngine

        config = config_of([f"engine.batch_size={mini.size.prompts * mini.size.responses}"])
        task = replace(mini.task, max_response_tokens=mini.size.max_tokens)
        host = Host(replace(config, algo=None, task=task, model=model), mini.engine.policy)
        engines["vLLM"] = VLLMEngine(host, mini.engine.policy, mini.ends)
        cases["vLLM"] = partial(rate, engines["vLLM"])
    common.report(title, common.alternate(cases, options.rounds), "tokens/s", "generate")
    for name, engine in engines.items():
        given = mini.prompts, 1
        ours = common.generate_responses(engine, *given, replace(sampling, temperature=0))
        theirs = transformers_responses(mini.engine, *given, sampling.max_tokens, do_sample=False)
        same = sum(list(a.tokens) == b for a, b in zip(ours, theirs, strict=True))
        print(f"{name}: {same / len(ours):.0%} of the greedy responses are those of generate")


def bare_rate(mini: MiniContests, number: int) -> dict[str, float]:
    """Tokens per second of forward passes over a token of each row, after its prompt."""
    model: Any = mini.engine.model  # of transformers
    ids = padded(mini.prompts, "left").to(model.device)
    with torch.inference_mode():
        given = {"input_ids": ids.clamp(min=0), "attention_mask": (ids >= 0).long()}
        cache = model(**given, use_cache=True, logits_to_keep=1).past_key_values
        cache.batch_repeat_interleave(mini.size.responses)
        ids = ids.repeat_interleave(mini.size.responses, 0)
        start, last = time.perf_counter(), ids[:, -1:]
        for _ in range(mini.size.max_tokens):
            ids = torch.cat([ids, last], 1)
            mask = (ids >= 0).long()
            model(input_ids=last, attention_mask=mask, past_key_values=cache, use_cache=True)
    return {"generation": len(ids) * mini.size.max_tokens / (time.perf_counter() - start)}


def generate_rate(mini: MiniContests, number: int) -> dict[str, float]:
    """Tokens per second of transformers' `generate`."""
    draws = {"do_sample": True, "temperature": 1.0, "top_p": 1.0, "top_k": 0}
    start = time.perf_counter()
    found = transformers_responses(
        mini.engine, mini.prompts, mini.size.responses, mini.size.max_tokens, **draws
    )
    return {"generation": sum(map(len, found)) / (time.perf_counter() - start)}


def transformers_responses(
    engine: HFEngine, prompts: common.Prompts, responses: int, max_tokens: int, **draws: object
) -> list[list[int]]:
    """Responses of transformers' `generate` to left-padded prompts, cut after EOS."""
    model: Any = engine.model  # of transformers
    ids = padded([prompt for prompt in prompts for _ in range(responses)], "left").to(model.device)
    inputs = {"input_ids": ids.clamp(min=0), "attention_mask": (ids >= 0).long()}
    draws |= {"max_new_tokens": max_tokens, "pad_token_id": engine.pad}
    with torch.inference_mode():
        output = model.generate(**inputs, **draws)
    eos, rows = set(engine.eos.tolist()), output[:, ids.shape[1] :].tolist()
    return [row[: next((i + 1 for i, t in enumerate(row) if t in eos), len(row))] for row in rows]


if __name__ == "__main__":
    command(ModelOptions, main)
