"""The nano models: corpora, tokenizer, a short pretraining, and the bundled files."""

from __future__ import annotations

import hashlib
import math
import random
import subprocess
import sys
from collections import defaultdict
from dataclasses import replace
from itertools import islice
from pathlib import Path
from statistics import fmean

import pytest

from envs.tasks.mini import problems as task
from envs.tasks.mini.families import Draft, Part, draft
from envs.tasks.mini.problems import MINI, MINI_LONG, TIERS, ProblemSet, compositions
from experiments.nano.corpus import NOISE, Corpus
from experiments.nano.recipes import RECIPES
from tests.experiments.compose import config

ROOT = Path(__file__).resolve().parents[2]
BUNDLED = ROOT / "assets" / "nano"
BUNDLED_5M = ROOT / "assets" / "nano_5m"
# of the first 200 pairs
CORPUS_SHA256 = "734ba702af8b1cc61eb4c4c7264e8a2a1fab6d3eb4a48e0dae1daf351d5e55ec"


@pytest.fixture(scope="module")
def bundled():
    from transformers import AutoModelForCausalLM, AutoTokenizer

    return (
        AutoTokenizer.from_pretrained(BUNDLED),
        AutoModelForCausalLM.from_pretrained(BUNDLED).eval(),
    )


every_set = pytest.mark.parametrize(
    "problem_set",
    [
        pytest.param(MINI, id=MINI.name),
        # The same families, of more parts each.
        pytest.param(MINI_LONG, id=MINI_LONG.name, marks=pytest.mark.slow),
    ],
)


def _drafts(problem_set: ProblemSet, level: int) -> list[Draft]:
    rng = random.Random(level)
    return [
        draft(rng, family, parts)
        for family in problem_set.families
        for parts in compositions(problem_set, family, "tune")
        if any(part.level == level for part in parts)
    ]


@every_set
def test_corpus_is_deterministic_and_keeps_off_the_other_splits(problem_set: ProblemSet):
    number = 400 if problem_set is MINI else 100  # a longer problem takes longer to build
    conversations = list(islice(Corpus(problem_set, 0), number))
    assert conversations == list(islice(Corpus(problem_set, 0), number))
    assert conversations != list(islice(Corpus(problem_set, 1), number))
    held_out = {
        p.statement
        for split in ("tune", "choose", "test")
        for p in task.load(split, 21, name=problem_set.name)
    }
    assert not held_out & {one.prompt.split("\nin:\n")[0] for one in conversations}


def test_corpus_of_the_first_model_is_unchanged():
    """The bundled model was made from it; another one would be another model."""
    pairs = repr([(one.prompt, *one.answers) for one in islice(Corpus(MINI, 0), 200)])
    assert hashlib.sha256(pairs.encode()).hexdigest() == CORPUS_SHA256


@every_set
@pytest.mark.parametrize("level", [0, 1, 2])
def test_noise_grows_with_rarity_at_the_stated_rates(problem_set: ProblemSet, level: int):
    rng, noise = random.Random(0), NOISE[problem_set]
    right = total = 0
    for drawn in _drafts(problem_set, level):
        wrong = noise.mistakes(drawn, rng)
        for slot, part in enumerate(drawn.parts):
            if part.level == level:
                total += 1
                right += slot not in wrong
    # Four standard deviations of a share of `total` draws.
    margin = 4 * (noise.right[level] * (1 - noise.right[level]) / total) ** 0.5
    assert total > 500
    assert abs(right / total - noise.right[level]) < margin


def _chance(part: Part, right: float, first_mistake: float) -> float:
    """How often a perfect learner of the noise gets a part right, sampled at temperature 0.4."""
    wrong = [first_mistake, 1 - first_mistake] if len(part.wrong) > 1 else [1.0]
    rights = [(right / len(part.right)) ** 2.5 for _ in part.right]
    wrongs = [((1 - right) * share) ** 2.5 for share in wrong]
    return sum(rights) / sum(rights + wrongs)


def _scores_of_a_perfect_learner(problem_set: ProblemSet) -> tuple[float, float]:
    """Its pass@1 and pass@10 on the choose split, tiers in equal parts."""
    rng, noise, by_tier = random.Random(0), NOISE[problem_set], defaultdict(list)
    for family in problem_set.families:
        every = compositions(problem_set, family, "choose")
        for tier in TIERS:
            cell = [parts for parts in every if family.tier(parts) == tier]
            for parts in rng.choices(cell, k=60):
                chances = (_chance(p, noise.right[p.level], noise.first_mistake) for p in parts)
                by_tier[tier].append(math.prod(chances))
    means = [
        (fmean(tier), fmean(1 - (1 - chance) ** 10 for chance in tier)) for tier in by_tier.values()
    ]
    return fmean(one for one, _ in means), fmean(ten for _, ten in means)


def test_the_noise_decides_what_the_base_models_reach():
    """0.058 and 0.242 were measured for the first; the longer task asks for .03 to .10 and < .4."""
    one, ten = _scores_of_a_perfect_learner(MINI)
    assert abs(one - 0.058) < 0.02
    assert abs(ten - 0.242) < 0.02
    one, ten = _scores_of_a_perfect_learner(MINI_LONG)
    assert 0.05 < one < 0.09
    assert 0.25 < ten < 0.37


@pytest.mark.parametrize(("size", "millions"), [("1m", (0.7, 0.8)), ("5m", (4.5, 6.0))])
def test_a_recipe_has_the_size_of_its_name(bundled, size: str, millions: tuple[float, float]):
    from experiments.nano.pretrain import new_model

    tokenizer, _ = bundled
    model = new_model(RECIPES[size](), tokenizer)
    assert millions[0] < model.num_parameters() / 1e6 < millions[1]


def test_bundled_folder_is_small_and_a_llama_under_three_million_parameters(bundled):
    _, model = bundled
    assert sum(file.stat().st_size for file in BUNDLED.iterdir()) <= 6_000_000
    assert model.config.model_type == "llama"
    assert model.num_parameters() <= 3_000_000


@pytest.mark.skipif(not BUNDLED_5M.exists(), reason="make nano size=5m has not been run")
def test_the_larger_model_is_half_precision_on_disk_and_float32_in_a_run():
    import torch
    from safetensors.torch import load_file
    from transformers import AutoTokenizer

    from experiments.policy.loading import load

    assert sum(file.stat().st_size for file in BUNDLED_5M.iterdir()) <= 25_000_000
    policy, tokenizer = load(config("task=mini_long").model)
    loaded = policy.model.state_dict()
    for name, stored in load_file(BUNDLED_5M / "model.safetensors").items():
        assert stored.dtype == torch.float16
        assert loaded[name].dtype == torch.float32
        assert torch.equal(loaded[name], stored.float())
    assert tokenizer.get_vocab() == AutoTokenizer.from_pretrained(BUNDLED).get_vocab()


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


@pytest.mark.slow  # longer problems take longer to build
def test_longer_programs_have_60_to_150_tokens(bundled):
    tokenizer, _ = bundled
    problems = [p for split in task.SPLITS for p in task.load(split, 21, name="mini_long")]
    programs = [program for p in problems for program in p.solutions]
    lengths = [len(ids) for ids in tokenizer(programs, add_special_tokens=False)["input_ids"]]
    assert 60 <= min(lengths) <= max(lengths) <= 150
    prompts = [task.prompt(p) for p in problems]
    assert max(len(ids) for ids in tokenizer(prompts)["input_ids"]) <= 128


def test_short_pretraining_learns_and_repeats_itself(tmp_path: Path):
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    from experiments.nano.pretrain import batches, pretrain, program_loss

    recipe = RECIPES["1m"](
        steps=30, batch_size=4, warmup=5, layers=1, hidden_size=32, tokenizer_texts=200
    )
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        pretrain(tmp_path / name, recipe)
    first, second = (
        AutoModelForCausalLM.from_pretrained(tmp_path / name).state_dict() for name in ("a", "b")
    )
    assert all(torch.equal(first[key], second[key]) for key in first)
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "a")
    model = AutoModelForCausalLM.from_pretrained(tmp_path / "a")
    held_out = batches(list(islice(Corpus(MINI, 7), 32)), tokenizer, 8)
    with torch.no_grad():
        loss = sum(program_loss(model, *batch).item() for batch in held_out) / len(held_out)
    assert loss < 0.9 * torch.log(torch.tensor(len(tokenizer))).item()


def test_an_interrupted_pretraining_resumes_to_the_same_bits(tmp_path: Path, monkeypatch):
    from experiments.nano import pretrain

    monkeypatch.setattr(pretrain, "_CONVERSATIONS", 16)
    recipe = RECIPES["5m"](steps=9, batch_size=4, warmup=2, layers=1, hidden_size=40)
    for name in ("whole", "parts"):
        (tmp_path / name).mkdir()
    pretrain.pretrain(tmp_path / "whole", recipe)

    def stopped_at_step_6(step, recipe):
        if step == 6:
            raise KeyboardInterrupt
        return rate(step, recipe)

    rate = pretrain._learning_rate
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(pretrain, "_learning_rate", stopped_at_step_6)
        pretrain.pretrain(tmp_path / "parts", recipe)
    with pytest.raises(ValueError, match="another recipe"):
        pretrain.pretrain(tmp_path / "parts", replace(recipe, seed=1))
    pretrain.pretrain(tmp_path / "parts", recipe)
    whole, parts = (
        {f.name: f.read_bytes() for f in (tmp_path / n).iterdir()} for n in ("whole", "parts")
    )
    assert whole == parts
    assert "model.safetensors" in whole
    assert pretrain.CHECKPOINT not in whole


def test_command_names_what_it_cannot_use(tmp_path: Path):
    out = f"out={tmp_path}/model"
    for arguments, named in (
        (["steps=3"], "out"),
        ([out, "step=3"], "step=3"),
        ([out, "size=7m"], "size='7m'; choose one of 1m, 5m, feedback"),
        ([out, "size="], "size=: it must not be empty"),
        ([out, "size=5m", "task=taco"], "task='taco'; choose one of mini, mini_long, mini_f"),
        ([out, "task=mini_feedback"], "task=mini_feedback: name a tokenizer="),
    ):
        done = subprocess.run(
            [sys.executable, "-m", "experiments.nano", *arguments],
            cwd=ROOT,
            capture_output=True,
            text=True,
        )
        assert done.returncode == 2
        assert named in done.stderr
        assert "Traceback" not in done.stderr
        assert not list(tmp_path.iterdir())


def test_the_longer_task_takes_its_model_and_longer_responses():
    chosen = config("task=mini_long")
    assert (chosen.model.name, chosen.model.path) == ("nano_5m", "assets/nano_5m")
    assert chosen.task.max_response_tokens == 160
    assert config("task=mini_long", "model=nano").model.path == "assets/nano"


def test_make_nano_takes_a_size():
    for given, expected in (
        ([], "size=1m out=assets/nano seed=0"),
        (["size=5m"], "size=5m out=assets/nano_5m seed=0"),
        (["size=feedback"], "size=feedback out=assets/nano_feedback seed=0"),
    ):
        shown = subprocess.run(
            ["make", "--dry-run", "nano", *given], cwd=ROOT, capture_output=True, text=True
        ).stdout
        assert f"-m experiments.nano {expected}\n" in shown
