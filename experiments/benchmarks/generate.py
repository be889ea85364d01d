"""`make bench-generate`: tokens per second of our sampling loop, transformers' `generate` and vLLM.

All sample from the same weights for the same prompts at the same temperature, in turn, in one
process; a ratio is the median of the rounds' ratios. Tokens count up to and including EOS. vLLM is
there where it is installed, and starts every round without a prefix cache, as after a weight sync.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from pathlib import Path

import torch
from rich.console import Console
from rich.table import Table

from envs.tasks import open_task
from envs.tasks.task_cli import task_config
from experiments.benchmarks.rows import row, save
from experiments.config.dependencies import RELEASE, installed
from experiments.config.schema import EngineConfig, ModelConfig, RunConfig
from experiments.engines.base import Engine, Sampling
from experiments.engines.hf import HFEngine
from experiments.engines.vllm import Host, VLLMEngine
from experiments.policy import loading
from experiments.rollout.prompts import encode_prompts

# Llama 3.2 1B, for --random: 1.24 B parameters.
SHAPE = {
    "vocab_size": 128256,
    "hidden_size": 2048,
    "intermediate_size": 8192,
    "num_hidden_layers": 16,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "tie_word_embeddings": True,
}


def main() -> None:
    options = parse()
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        config, model, tokenizer = prepare(options, Path(folder))
        task = open_task(config.task)
        prompts = [
            p.tokens for p in encode_prompts(task.train, task, tokenizer, config.task, {})[0]
        ]
        ends = loading.end_tokens(model, tokenizer)
        engines: dict[str, Engine] = {"ours": HFEngine(model, ends, tokenizer.pad_token_id, 4096)}
        if installed() == RELEASE:
            engines["vLLM"] = VLLMEngine(Host(config, model), model, ends)
        measure(options, engines, prompts)


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--model", default="assets/nano", help="a model's folder or hub id")
    parser.add_argument("--dtype", default="float32", choices=list(loading.DTYPES))
    parser.add_argument(
        "--random", action="store_true", help="random weights in the shape of Llama 3.2 1B instead"
    )
    parser.add_argument("--prompts", type=int, default=16)
    parser.add_argument("--responses", type=int, default=8, help="to each prompt")
    parser.add_argument("--max-tokens", type=int, default=64)
    parser.add_argument("--temperature", type=float, default=1.0)
    parser.add_argument("--top-p", type=float, default=1.0)
    parser.add_argument("--rounds", type=int, default=7)
    return parser.parse_args()


def prepare(options: argparse.Namespace, folder: Path) -> tuple[RunConfig, torch.nn.Module, object]:
    """The configuration of the engines, the model, and the tokenizer of the prompts."""
    config = RunConfig(
        algo=None,
        task=task_config(["task=mini"]),
        model=ModelConfig(path=options.model, dtype=options.dtype),
        engine=EngineConfig(batch_size=options.prompts * options.responses),
    )
    model, tokenizer = loading.load(config.model)
    if options.random:
        model = random_model(SHAPE, model)
        model.config.save_pretrained(folder)  # vLLM reads the shape there, the weights from here
        config.model.path = str(folder)
    config.task.train_problems = options.prompts
    config.task.max_response_tokens = options.max_tokens
    config.task.chat = bool(tokenizer.chat_template)
    return config, model, tokenizer


def random_model(shape: dict[str, object], like: torch.nn.Module) -> torch.nn.Module:
    """A Llama of this shape, with the device, dtype and special tokens of `like`."""
    from transformers import LlamaConfig, LlamaForCausalLM

    special = {key: getattr(like.config, key) for key in ("bos_token_id", "eos_token_id")}
    torch.manual_seed(0)
    config = LlamaConfig(**shape, **special, pad_token_id=0, dtype=like.dtype)
    with torch.device(like.device):
        return LlamaForCausalLM(config).to(like.dtype).eval()


def measure(options: argparse.Namespace, engines: dict[str, Engine], prompts: list) -> None:
    ours = engines["ours"]
    sampling = Sampling(options.max_tokens, options.temperature, options.top_p)
    same = {
        name: same_greedy_tokens(engine, ours, prompts, options.max_tokens)
        for name, engine in engines.items()
    }
    rates: dict[str, list[float]] = {name: [] for name in ("ours", "generate", *engines)}
    for number in range(options.rounds + 1):  # the first round warms up and is not counted
        for name, rate in rates.items():
            if name in engines:
                given = (options.responses, sampling, number)
                rate.append(engine_rate(engines[name], prompts, *given))
            else:
                rate.append(generate_rate(ours, prompts, options.responses, sampling))
    report({name: rate[1:] for name, rate in rates.items()}, same)


def engine_rate(
    engine: Engine, prompts: list, responses: int, sampling: Sampling, seed: int
) -> float:
    if isinstance(engine, VLLMEngine):
        engine.host.llm.reset_prefix_cache()
    seeds = [
        [seed * 10**6 + row * 1000 + i for i in range(responses)] for row in range(len(prompts))
    ]
    begin = time.perf_counter()
    groups = engine.generate(prompts, seeds, sampling)
    elapsed = time.perf_counter() - begin
    return sum(len(c.tokens) for group in groups for c in group) / elapsed


def padded(prompts: list, pad: int, repeats: int) -> dict[str, torch.Tensor]:
    width = max(map(len, prompts))
    rows = [[pad] * (width - len(p)) + list(p) for p in prompts for _ in range(repeats)]
    real = [[0] * (width - len(p)) + [1] * len(p) for p in prompts for _ in range(repeats)]
    return {"input_ids": torch.tensor(rows), "attention_mask": torch.tensor(real)}


def generated(engine: HFEngine, prompts: list, repeats: int, **how: object) -> list[list[int]]:
    inputs = padded(prompts, engine.pad, repeats)
    inputs = {name: tensor.to(engine.model.device) for name, tensor in inputs.items()}
    with torch.inference_mode():
        output = engine.model.generate(**inputs, pad_token_id=engine.pad, **how)
    ends = set(engine.eos.tolist())
    rows = output[:, inputs["input_ids"].shape[1] :].tolist()
    return [row[: next((i + 1 for i, t in enumerate(row) if t in ends), len(row))] for row in rows]


def generate_rate(engine: HFEngine, prompts: list, responses: int, sampling: Sampling) -> float:
    how = {"temperature": sampling.temperature, "top_p": sampling.top_p, "top_k": 0}
    how["max_new_tokens"] = sampling.max_tokens
    begin = time.perf_counter()
    rows = generated(engine, prompts, responses, do_sample=True, **how)
    return sum(map(len, rows)) / (time.perf_counter() - begin)


def same_greedy_tokens(engine: Engine, through: HFEngine, prompts: list, max_tokens: int) -> float:
    """The share of prompts with the greedy response of `generate`, called through `through`."""
    ours = engine.generate(prompts, [[0]] * len(prompts), Sampling(max_tokens, temperature=0))
    theirs = generated(through, prompts, 1, do_sample=False, max_new_tokens=max_tokens)
    return statistics.fmean(
        list(group[0].tokens) == row for group, row in zip(ours, theirs, strict=True)
    )


def report(rates: dict[str, list[float]], same: dict[str, float]) -> None:
    table = Table("round", *(f"{name}, tokens/s" for name in rates))
    for number, told in enumerate(zip(*rates.values(), strict=True), start=1):
        table.add_row(str(number), *(f"{value:,.0f}" for value in told))
    console = Console()
    console.print(table)
    for name, share in same.items():
        console.print(f"{name}: same greedy tokens as generate for {share:.0%} of prompts")
        ratios = [a / b for a, b in zip(rates[name], rates["generate"], strict=True)]
        console.print(f"{name}: {statistics.median(ratios):.2f} times generate (median of rounds)")
    found = [row(name, "writing", rate, "tokens/s") for name, rate in rates.items()]
    for name in same:
        ratios = [a / b for a, b in zip(rates[name], rates["generate"], strict=True)]
        found.append(row(name, "to transformers' generate", ratios))
    print(f"written to {save('generate', found)}")
    if "vLLM" not in rates:
        console.print(f"no vLLM {RELEASE} here, so no third column; `make test-vllm` builds one")


if __name__ == "__main__":
    main()
