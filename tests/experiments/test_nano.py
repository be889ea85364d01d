"""The nano models: corpora, a short pretraining, and what the bundled files must fit."""

import hashlib
from collections import Counter
from dataclasses import replace
from itertools import count, islice
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from envs.judge.extract import as_response
from envs.judge.judge import Judge
from envs.problem import Submission, Verdict
from envs.sandbox.embedded import EmbeddedSandbox
from envs.tasks import mini as task
from envs.tasks.mini import MINI
from envs.tasks.prompts import Feedback
from experiments import nano
from experiments.errors import UserError
from experiments.nano import MENDED, SIZES, SLIP, Corpus, FeedbackCorpus, Recipe
from tests.experiments.compose import config

ASSETS = Path(__file__).resolve().parents[2] / "assets"
# of the first 200 pairs; the bundled model was made from them
CORPUS_SHA256 = "734ba702af8b1cc61eb4c4c7264e8a2a1fab6d3eb4a48e0dae1daf351d5e55ec"


@pytest.fixture(scope="module")
def tokenizer():
    return AutoTokenizer.from_pretrained(ASSETS / "nano")


@pytest.fixture(scope="module")
def conversations(tokenizer):
    return list(islice(FeedbackCorpus(0, nano.observation_encoder(tokenizer)), 200))


def test_the_corpus_is_unchanged_and_keeps_off_the_other_splits(conversations, tokenizer):
    pairs = list(islice(Corpus(MINI, 0), 200))
    text = repr([(one.prompt, *one.answers) for one in pairs])
    assert hashlib.sha256(text.encode()).hexdigest() == CORPUS_SHA256
    held_out = {p.statement for split in ("tune", "choose", "test") for p in task.load(split, 21)}
    assert not held_out & {one.prompt.split("\nin:\n")[0] for one in pairs + conversations}
    assert Counter(len(one.answers) for one in conversations).keys() == {1, 2, 3}
    again = FeedbackCorpus(0, nano.observation_encoder(tokenizer))
    assert conversations[:50] == list(islice(again, 50))


@pytest.mark.parametrize("level", [0, 1, 2])
def test_parts_go_wrong_and_are_mended_at_the_stated_rates(level):
    corpus, counts = FeedbackCorpus(1, encoder=None), Counter()
    for _ in range(2000):
        drawn, _ = corpus.draw()
        before = corpus.noise.mistakes(drawn, corpus.rng)
        after = corpus._next(drawn, before)
        for slot, part in enumerate(drawn.parts):
            if part.level == level:
                counts[slot in before, slot in after] += 1
    mistakes = counts[True, True] + counts[True, False]
    rights = counts[False, True] + counts[False, False]
    for made, total, rate in (
        (rights, rights + mistakes, corpus.noise.right[level]),
        (counts[True, False], mistakes, MENDED[level]),
        (counts[False, True], rights, SLIP),
    ):
        assert abs(made / total - rate) < 4 * (rate * (1 - rate) / total) ** 0.5


def test_a_run_says_of_a_program_what_the_corpus_says(conversations, tokenizer):
    """Its conversations are judged in this process; a run's are judged in a sandbox."""
    corpus = FeedbackCorpus(5, encoder=None)
    template = Feedback("tests", nano.TEMPLATES / "feedback_mini.jinja")
    given = []
    for style in range(60):
        drawn, shown = corpus.draw()
        problem = nano.public_problem(drawn, shown)
        given.append((problem, drawn.version(str(style), corpus.noise.mistakes(drawn, corpus.rng))))
    with EmbeddedSandbox(1) as sandbox:
        found = Judge(sandbox).judge([Submission(p, as_response(x)) for p, x in given])
    for (problem, program), theirs in zip(given, found, strict=True):
        ours = nano.judgement(problem, program)
        assert ours.verdict is theirs.verdict
        if ours.verdict is not Verdict.ACCEPTED:
            assert template.observation(problem, ours) == template.observation(problem, theirs)


def test_a_conversation_is_encoded_as_a_run_encodes_it(conversations, tokenizer):
    """Answers with their end tokens are learned; prompt and observations are read."""
    for one, (ids, own) in zip(conversations, nano.encode(tokenizer, conversations), strict=True):
        messages = [{"role": "user", "content": one.prompt}]
        for answer, observation in zip(one.answers, (*one.observations, ""), strict=True):
            messages.append({"role": "assistant", "content": answer})
            messages.append({"role": "user", "content": observation})
        assert tokenizer.decode(ids) == tokenizer.apply_chat_template(messages[:-1], tokenize=False)
        learned = tokenizer.decode([i for i, mine in zip(ids, own, strict=True) if mine])
        assert learned == "".join(answer + tokenizer.eos_token for answer in one.answers)


def test_an_interrupted_pretraining_learns_and_resumes_to_the_same_bits(tmp_path, monkeypatch):
    monkeypatch.setattr(nano, "CONVERSATIONS", 32)
    monkeypatch.setattr(nano, "SAVE_S", 0.0)
    small = {"steps": 40, "batch_size": 4, "warmup": 5, "layers": 1, "hidden_size": 32}
    recipe = Recipe(**small, tokenizer_texts=200)
    for name in ("whole", "parts"):
        (tmp_path / name).mkdir()
    nano.pretrain(tmp_path / "whole", recipe)
    rate = nano.learning_rate

    def stopped(step, recipe):
        if step == 18:
            raise KeyboardInterrupt
        return rate(step, recipe)

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(nano, "learning_rate", stopped)
        nano.pretrain(tmp_path / "parts", recipe)
    with pytest.raises(UserError, match="another recipe"):
        nano.pretrain(tmp_path / "parts", replace(recipe, seed=1))
    nano.pretrain(tmp_path / "parts", recipe)
    whole, parts = (
        {f.name: f.read_bytes() for f in (tmp_path / n).iterdir()} for n in ("whole", "parts")
    )
    assert whole == parts and nano.CHECKPOINT not in whole
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "whole")
    model = AutoModelForCausalLM.from_pretrained(tmp_path / "whole")
    held_out = nano.batches(list(islice(Corpus(MINI, 7), 32)), tokenizer, 8)
    with torch.no_grad():
        loss = sum(nano.program_loss(model, *batch).item() for batch in held_out) / len(held_out)
    assert loss < 0.9 * torch.log(torch.tensor(len(tokenizer))).item()


def test_minutes_end_the_schedule_by_the_clock(tmp_path, monkeypatch):
    """The clock goes on by six seconds whenever it is read, so ten readings are a minute."""
    ticks, rate, places = count(0, 6), nano.learning_rate, []
    monkeypatch.setattr(nano, "time", SimpleNamespace(monotonic=lambda: next(ticks)))
    monkeypatch.setattr(nano, "learning_rate", lambda n, r: places.append(n) or rate(n, r))
    recipe = Recipe(steps=40, batch_size=2, layers=1, hidden_size=32, tokenizer="assets/nano")
    nano.pretrain(tmp_path, recipe, minutes=1)
    # two groups of parameters; two more readings at the checkpoint of the start
    assert places[::2] == [4, 16, 20, 24, 28, 32, 36] and (tmp_path / "config.json").exists()


@pytest.mark.parametrize(
    ("size", "path", "task", "millions"),
    [
        ("1m", "assets/nano", "mini", 0.8),
        ("5m", "assets/nano_5m", "mini_long", 5.7),
        ("feedback", "assets/nano_feedback", "mini_feedback", 0.8),
        ("15m", "outputs/nano_15m", "mini_long model=nano_15m", 15.7),
        ("25m", "outputs/nano_25m", "mini_long model=nano_25m", 24.4),
        ("60m", "outputs/nano_60m", "mini_long model=nano_60m", 62.1),
    ],
)
def test_a_model_has_the_shape_of_its_recipe_and_fits_its_task(
    size, path, task, millions, tokenizer
):
    with torch.device("meta"):
        made = nano.new_model(Recipe(**SIZES[size]), tokenizer)
    assert round(made.num_parameters() / 1e6, 1) == millions
    run = config(*f"task={task}".split())
    assert run.model.path == path and run.algo.learning_rate == 3e-4
    folder = ASSETS.parent / path
    saved = AutoModelForCausalLM.from_pretrained(folder) if folder.exists() else made
    shapes = [{n: p.shape for n, p in model.named_parameters()} for model in (made, saved)]
    assert shapes[0] == shapes[1]
    if saved is not made:
        assert AutoTokenizer.from_pretrained(folder).get_vocab() == tokenizer.get_vocab()
    longest = run.task.max_prompt_tokens + run.longest_response(run.task.turns)
    assert longest <= saved.config.max_position_embeddings


def test_the_tokenizer_round_trips_and_splits_digits(tokenizer):
    for text in ("naïve\t\x00 ⟨é⟩ 12345\n", *task.load("test", 1)[0].solutions):
        ids = tokenizer(text, add_special_tokens=False)["input_ids"]
        assert tokenizer.decode(ids) == text
    assert len(tokenizer("90417", add_special_tokens=False)["input_ids"]) == 5
