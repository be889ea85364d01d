"""The nano model: its corpus, its tokenizer, a short pretraining, and the bundled files."""

from __future__ import annotations

import random
import subprocess
import sys
from itertools import islice
from pathlib import Path

import pytest

from envs.tasks.mini import FAMILIES, task
from envs.tasks.mini.composition import Draft, draft
from experiments.nano.corpus import RIGHT, examples, mistakes

ROOT = Path(__file__).resolve().parents[2]
BUNDLED = ROOT / "assets" / "nano"


@pytest.fixture(scope="module")
def bundled():
    from transformers import AutoModelForCausalLM, AutoTokenizer

    return (
        AutoTokenizer.from_pretrained(BUNDLED),
        AutoModelForCausalLM.from_pretrained(BUNDLED).eval(),
    )


def _drafts(level: int) -> list[Draft]:
    rng = random.Random(level)
    return [
        draft(rng, family, parts)
        for family in FAMILIES
        for parts in task.compositions(family, "train")
        if any(part.level == level for part in parts)
    ]


def test_corpus_is_deterministic_and_keeps_off_the_other_splits():
    pairs = list(islice(examples(0), 400))
    assert pairs == list(islice(examples(0), 400))
    assert pairs != list(islice(examples(1), 400))
    held_out = {p.statement for split in ("tune", "choose", "test") for p in task.load(split)}
    assert not held_out & {prompt.split("\nin:\n")[0] for prompt, _ in pairs}


@pytest.mark.parametrize("level", [0, 1, 2])
def test_noise_grows_with_rarity_at_the_stated_rates(level: int):
    rng = random.Random(0)
    right = total = 0
    for drawn in _drafts(level):
        wrong = mistakes(drawn, rng)
        for slot, part in enumerate(drawn.parts):
            if part.level == level:
                total += 1
                right += slot not in wrong
    # Four standard deviations of a share of `total` draws.
    margin = 4 * (RIGHT[level] * (1 - RIGHT[level]) / total) ** 0.5
    assert total > 1000
    assert abs(right / total - RIGHT[level]) < margin


def test_bundled_folder_is_small_and_a_llama_under_three_million_parameters(bundled):
    _, model = bundled
    assert sum(file.stat().st_size for file in BUNDLED.iterdir()) <= 6_000_000
    assert model.config.model_type == "llama"
    assert model.num_parameters() <= 3_000_000


def test_tokenizer_round_trips_and_splits_digits(bundled):
    tokenizer, _ = bundled
    for problem in task.load("test", 30):
        for text in (task.prompt(problem), *problem.solutions):
            ids = tokenizer(text, add_special_tokens=False)["input_ids"]
            assert tokenizer.decode(ids) == text
    odd = "naïve\t\x00 ⟨é⟩ 12345\n"
    ids = tokenizer(odd, add_special_tokens=False)["input_ids"]
    assert tokenizer.decode(ids) == odd
    assert len(tokenizer("90417", add_special_tokens=False)["input_ids"]) == 5
    multi_line = [t for t in map(tokenizer.decode, range(len(tokenizer))) if "\n" in t.strip(" ")]
    assert multi_line == ["\n"]


def test_chat_template_renders_the_prompt_and_the_answer(bundled):
    tokenizer, _ = bundled
    user = {"role": "user", "content": "add 1"}
    assistant = {"role": "assistant", "content": "print(1)"}
    prompt = tokenizer.apply_chat_template([user], add_generation_prompt=True, tokenize=False)
    whole = tokenizer.apply_chat_template([user, assistant], tokenize=False)
    assert prompt == "<|bos|><|user|>add 1<|assistant|>"
    assert whole == prompt + "print(1)" + tokenizer.eos_token


def test_prompts_and_programs_are_short(bundled):
    tokenizer, _ = bundled
    for problem in task.load("train", 200):
        prompt = tokenizer(task.prompt(problem), add_special_tokens=False)["input_ids"]
        assert len(prompt) <= 96
        for program in problem.solutions:
            assert len(tokenizer(program, add_special_tokens=False)["input_ids"]) < 64


def test_short_pretraining_learns_and_repeats_itself(tmp_path: Path):
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    from experiments.nano.pretrain import Recipe, batches, pretrain, program_loss

    recipe = Recipe(steps=30, batch_size=4, warmup=5, layers=1, hidden_size=32, tokenizer_texts=200)
    for name in ("a", "b"):
        pretrain(tmp_path / name, recipe)
    first, second = (
        AutoModelForCausalLM.from_pretrained(tmp_path / name).state_dict() for name in ("a", "b")
    )
    assert all(torch.equal(first[key], second[key]) for key in first)
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "a")
    model = AutoModelForCausalLM.from_pretrained(tmp_path / "a")
    held_out = batches(list(islice(examples(7), 32)), tokenizer, 8)
    with torch.no_grad():
        loss = sum(program_loss(model, *batch).item() for batch in held_out) / len(held_out)
    assert loss < 0.9 * torch.log(torch.tensor(len(tokenizer))).item()


def test_command_names_what_it_cannot_use(tmp_path: Path):
    for arguments, named in ((["steps=3"], "out"), ([f"out={tmp_path}", "step=3"], "step=3")):
        done = subprocess.run(
            [sys.executable, "-m", "experiments.nano", *arguments],
            cwd=ROOT,
            capture_output=True,
            text=True,
        )
        assert done.returncode == 2
        assert named in done.stderr
        assert "Traceback" not in done.stderr
