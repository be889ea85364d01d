"""`make bench-generate`: tokens per second of our sampling loop against transformers' `generate`.

Both sample from the same model for the same prompts at the same temperature, in turn, in one
process; the figure is the median of the rounds' ratios. Tokens count up to and including EOS.
"""

from __future__ import annotations

import argparse
import statistics
import time

import torch
from rich.console import Console
from rich.table import Table

from envs.tasks import open_task
from envs.tasks.config import TaskConfig
from experiments import models
from experiments.config import ModelConfig
from experiments.engines.base import Sampling
from experiments.engines.hf import HFEngine
from experiments.prompts import encode_prompts


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--model", default="assets/nano", help="a model's folder or hub id")
    parser.add_argument("--prompts", type=int, default=16)
    parser.add_argument("--responses", type=int, default=8, help="to each prompt")
    parser.add_argument("--max-tokens", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=7)
    options = parser.parse_args()
    torch.set_num_threads(1)

    model, tokenizer = models.load(ModelConfig(path=options.model))
    task = open_task(TaskConfig(train_problems=options.prompts))
    chat = TaskConfig(chat=bool(tokenizer.chat_template))
    prompts = [p.tokens for p in encode_prompts(task.train, task.prompt, tokenizer, chat, {})[0]]
    engine = HFEngine(model, models.end_tokens(model, tokenizer), tokenizer.pad_token_id, 4096)
    same = same_greedy_tokens(engine, prompts, options.max_tokens)

    ours, theirs = [], []
    for number in range(options.rounds + 1):  # the first round warms up and is not counted
        ours.append(our_rate(engine, prompts, options.responses, options.max_tokens, number))
        theirs.append(generate_rate(engine, prompts, options.responses, options.max_tokens))
    report(ours[1:], theirs[1:], same)


def our_rate(engine: HFEngine, prompts: list, responses: int, max_tokens: int, seed: int) -> float:
    seeds = [
        [seed * 10**6 + row * 1000 + i for i in range(responses)] for row in range(len(prompts))
    ]
    begin = time.perf_counter()
    groups = engine.generate(prompts, seeds, Sampling(max_tokens))
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


def generate_rate(engine: HFEngine, prompts: list, responses: int, max_tokens: int) -> float:
    begin = time.perf_counter()
    rows = generated(engine, prompts, responses, do_sample=True, top_k=0, max_new_tokens=max_tokens)
    return sum(map(len, rows)) / (time.perf_counter() - begin)


def same_greedy_tokens(engine: HFEngine, prompts: list, max_tokens: int) -> float:
    """The share of prompts with equal greedy responses."""
    ours = engine.generate(prompts, [[0]] * len(prompts), Sampling(max_tokens, temperature=0))
    theirs = generated(engine, prompts, 1, do_sample=False, max_new_tokens=max_tokens)
    return statistics.fmean(
        list(group[0].tokens) == row for group, row in zip(ours, theirs, strict=True)
    )


def report(ours: list[float], theirs: list[float], same: float) -> None:
    ratios = [a / b for a, b in zip(ours, theirs, strict=True)]
    table = Table("round", "ours, tokens/s", "generate, tokens/s", "ratio")
    for number, row in enumerate(zip(ours, theirs, ratios, strict=True), start=1):
        table.add_row(str(number), *(f"{value:,.0f}" for value in row[:2]), f"{row[2]:.2f}")
    console = Console()
    console.print(table)
    console.print(f"same greedy tokens: {same:.0%} of prompts")
    console.print(f"median ratio: {statistics.median(ratios):.2f}")


if __name__ == "__main__":
    main()
