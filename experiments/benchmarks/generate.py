"""`make bench-generate`: tokens per second of our sampling loop, transformers' `generate` and vLLM.

All sample from the same weights for the same prompts at the same temperature, in turn, in one
process. Tokens count up to and including EOS. vLLM takes part where it is installed; it starts
every round without a prefix cache, as after a weight sync. The bare forward pass is what no loop of
this model can do without: a token of every row at a time, nothing sampled, prompts not counted.

`turns=3` measures conversations of three answers with random observations instead: each answer
goes on from the keys and values of what came before, or reads it anew.

Beside float32 there are rows of the same weights in bfloat16, without vLLM, which holds one model;
`dtype=bfloat16` measures all in it. CPUs with avx512_bf16 multiply matrices faster in bfloat16.
"""

from __future__ import annotations

import random
import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from pydantic import PositiveFloat, PositiveInt

from experiments.benchmarks import common, workload
from experiments.benchmarks.workload import MiniContests, Prompts, padded
from experiments.config.composition import config_of
from experiments.config.preflight import VLLM_RELEASE, vllm_version
from experiments.engines.base import Engine, Request, Sampling
from experiments.engines.vllm import Host, VLLMEngine

if TYPE_CHECKING:
    from experiments.engines.hf import HFEngine


@dataclass
class Options(common.Options):
    model: str = "nano"  # of conf/model, a folder, a .gguf file or a hub id
    dtype: workload.Dtype = "float32"  # of the weights
    prompts: PositiveInt | None = None  # generated for at once; null: 16, not bundled: 4
    responses: PositiveInt | None = None  # to each prompt; null: 8, not bundled: 4
    max_tokens: PositiveInt | None = None  # of a response; null: 64, not bundled: 48
    temperature: PositiveFloat = 1.0  # of sampling
    top_p: PositiveFloat = 1.0  # share of the probability that is sampled
    turns: PositiveInt = 1  # answers of a conversation; with more, our loop alone is measured
    observation_tokens: PositiveInt = 64  # after each answer but the last


def main(options: Options) -> None:
    """Measure and write `generate.json`."""
    model = workload.usable_model(options.model, options.dtype)
    import torch

    from experiments.engines.hf import HFEngine
    from experiments.policy import loading

    torch.set_num_threads(1)
    size = workload.batch_size(model, options.prompts, options.responses, options.max_tokens)
    mini = MiniContests.load(model, size)
    facts = {"model": options.model, "workload": f"{size} tokens"}
    if options.turns > 1:
        facts["turns"] = f"{options.turns}, {options.observation_tokens} tokens between two"
        common.finish("generate_turns", of_conversations(mini, options), options.out, **facts)
        return
    ours, others = mini.engine, dict[str, Engine]()
    if vllm_version() == VLLM_RELEASE:
        mini.task.max_response_tokens = size.max_tokens
        default = config_of([f"engine.batch_size={size.prompts * size.responses}"])
        config = replace(default, algo=None, task=mini.task, model=model)
        others["vLLM"] = VLLMEngine(Host(config, ours.policy), ours.policy, mini.ends)
    else:
        print(f"no vLLM {VLLM_RELEASE} here; `make test-vllm` builds one")
    sampling = Sampling(size.max_tokens, options.temperature, options.top_p)
    loops = {"": ours}
    if options.dtype == "float32":
        policy, _ = loading.load(replace(model, dtype="bfloat16"))
        loops[", bfloat16"] = HFEngine(policy, mini.ends, ours.pad, 4096)
    rows = measure(loops, others, mini, sampling, options.rounds)
    for name, engine in {"ours": ours, **others}.items():
        same = same_greedy_tokens(engine, ours, mini.prompts, size.max_tokens)
        rows.append(common.row(name, "greedy responses equal to generate's", [same]))
    # vLLM's CPU build sets torch's threads for the whole process.
    threads = torch.get_num_threads()
    common.finish("generate", rows, options.out, **facts, threads=threads)


def measure(
    loops: Mapping[str, HFEngine],
    others: Mapping[str, Engine],
    mini: MiniContests,
    sampling: Sampling,
    rounds: int,
) -> list[common.Row]:
    """Tokens per second of our loops, of bare forward passes and transformers' `generate` on the
    model of each, and of other engines. A loop's key follows the names of its rows."""
    draws = {"temperature": sampling.temperature, "top_p": sampling.top_p, "top_k": 0}
    draws |= {"do_sample": True, "max_new_tokens": sampling.max_tokens}

    def rate(engine: Engine, number: int) -> dict[str, float]:
        if isinstance(engine, VLLMEngine):
            engine.host.llm.reset_prefix_cache()
        return workload.engine_rate(engine, mini.prompts, mini.size.responses, sampling, number)

    cases: dict[str, Callable[[int], dict[str, float]]] = {}
    for suffix, loop in loops.items():
        theirs = partial(_transformers, loop, mini.prompts, mini.size.responses, **draws)
        cases[f"bare forward{suffix}"] = partial(_bare_rate, loop, mini)
        cases[f"generate{suffix}"] = partial(_generate_rate, theirs)
        cases[f"ours{suffix}"] = partial(rate, loop)
    cases |= {name: partial(rate, engine) for name, engine in others.items()}
    return common.compare(common.alternate(cases, rounds), "tokens/s", baseline="generate")


def of_conversations(mini: MiniContests, options: Options) -> list[common.Row]:
    """Tokens per second of conversations in our loop; every one has all its turns."""
    sampling = Sampling(mini.size.max_tokens, options.temperature, options.top_p)
    draw = random.Random(0)
    observation = [draw.randrange(3, 200) for _ in range(options.observation_tokens)]

    def rate(keep: bool, number: int) -> dict[str, float]:
        seeds = workload.seeds_of(mini.size.prompts, mini.size.responses, number * options.turns)
        begun: list[list[list[int]]] = [[[] for _ in group] for group in seeds]
        tokens, start = 0, time.perf_counter()
        for turn in range(options.turns):
            groups = mini.engine.generate(
                Request(
                    mini.prompts,
                    [[seed + turn * 10**9 for seed in group] for group in seeds],
                    sampling,
                    begun=begun if turn else None,
                    keep=keep and turn + 1 < options.turns,
                )
            )
            for of_prompt, answers in zip(begun, groups, strict=True):
                for response, answer in zip(of_prompt, answers, strict=True):
                    response += [*answer.tokens, *observation]
                    tokens += len(answer.tokens)
        return {"generation": tokens / (time.perf_counter() - start)}

    cases = {"read anew": partial(rate, False), "kept": partial(rate, True)}
    values = common.alternate(cases, options.rounds)
    return common.compare(values, "tokens/s", baseline="read anew")


def _generate_rate(generate: Callable[[], list[list[int]]], number: int) -> dict[str, float]:
    return workload.generation_rate(generate)


def _bare_rate(loop: HFEngine, mini: MiniContests, number: int) -> dict[str, float]:
    """Tokens per second of forward passes over a token of each row, after its prompt."""
    import torch

    model: Any = loop.model  # of transformers
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


def _transformers(
    engine: HFEngine, prompts: Prompts, responses: int, **options: object
) -> list[list[int]]:
    """Responses of transformers' `generate` to left-padded prompts, cut after EOS."""
    import torch

    model: Any = engine.model  # of transformers
    ids = padded([prompt for prompt in prompts for _ in range(responses)], "left").to(model.device)
    inputs = {"input_ids": ids.clamp(min=0), "attention_mask": (ids >= 0).long()}
    with torch.inference_mode():
        output = model.generate(**inputs, pad_token_id=engine.pad, **options)
    eos, rows = set(engine.eos.tolist()), output[:, ids.shape[1] :].tolist()
    return [row[: next((i + 1 for i, t in enumerate(row) if t in eos), len(row))] for row in rows]


def same_greedy_tokens(
    engine: Engine, reference: HFEngine, prompts: Prompts, max_tokens: int
) -> float:
    """Share of prompts whose greedy response is that of `generate` on `reference`'s model."""
    greedy = Sampling(max_tokens, temperature=0)
    ours = workload.generate_responses(engine, prompts, 1, greedy)
    theirs = _transformers(reference, prompts, 1, do_sample=False, max_new_tokens=max_tokens)
    return statistics.fmean(list(a.tokens) == b for a, b in zip(ours, theirs, strict=True))


if __name__ == "__main__":
    common.command(Options, main)
