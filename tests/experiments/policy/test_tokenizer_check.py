"""A folder whose tokenizer or template does not fit its model: one line before the weights load."""

import json
import shutil
from pathlib import Path

import pytest

from experiments.policy import loading
from experiments.policy.tokenizer_check import check_vocabulary
from experiments.replay.sources import encode_response
from experiments.trainer import train
from tests.compose import model_config
from tests.errors_page import row_of
from tests.experiments.compose import config
from tests.experiments.kinds import model_of

NANO = Path("assets/nano")
ADDED = {"special": False, "single_word": False, "lstrip": False, "rstrip": False}


@pytest.fixture
def mine(tmp_path):
    """A model of 1,024 tokens with the bundled tokenizer."""
    shutil.copytree(NANO, tmp_path / "mine")
    return tmp_path / "mine"


def change(file, **values):
    """Set keys of a JSON file; None removes one."""
    kept = json.loads(file.read_text()) | values
    file.write_text(json.dumps({key: kept[key] for key in kept if kept[key] is not None}))


def add_token(folder, text):
    file = folder / "tokenizer.json"
    tokens = json.loads(file.read_text())["added_tokens"]
    change(file, added_tokens=[*tokens, {"id": 1024, "content": text, "normalized": False} | ADDED])


def undefined_in_template(folder):
    (folder / "chat_template.jinja").write_text("{{ x.y }}")


def without_end(folder):
    change(folder / "tokenizer_config.json", eos_token=None)
    change(folder / "generation_config.json", eos_token_id=None)


MISTAKES = {
    "a chat template that fails": undefined_in_template,
    "the tokenizer of a model with more tokens": (
        lambda folder: model_of("llama").save_pretrained(folder)
    ),
    "an added token without an embedding in the prompts": lambda folder: add_token(folder, "in:\n"),
    "no end token": without_end,
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_it_is_the_line_of_the_errors_page_before_the_weights_are_loaded(
    mistake, mine, tmp_path, monkeypatch
):
    MISTAKES[mistake](mine)
    monkeypatch.setattr(loading, "load_policy", None)
    given = ["model=local", f"model.path={mine}", f"output_dir={tmp_path}", "sandbox=embedded"]
    outcome = train(config(*given, "task.train_problems=8", "task.choose_problems=4"))
    assert (outcome.status, outcome.expected) == ("failed", True), outcome.error
    assert row_of(mistake).fits(f"error: {outcome.error}"), outcome.error


def test_a_smaller_tokenizer_and_added_tokens_that_no_text_has_are_usual(mine):
    add_token(mine, "<image>")
    tokenizer = loading.load_tokenizer(model_config(path=str(mine)))
    assert len(tokenizer) == 1025
    for rows in (1024, 1100):
        check_vocabulary(tokenizer, model_of("llama", vocab_size=rows).config, "mine", 1023)


@pytest.mark.parametrize("file", ["generation_config.json", "config.json"])
def test_the_models_end_token_stands_in_for_the_tokenizers(file, mine):
    change(mine / "tokenizer_config.json", eos_token=None, pad_token=None)
    if file == "config.json":
        (mine / "generation_config.json").unlink()
    change(mine / file, eos_token_id=[-1, 7, 2])  # −1: none, in some folders
    policy, tokenizer = loading.load(model_config(path=str(mine)))
    assert tokenizer.eos_token_id == tokenizer.pad_token_id == 7
    assert encode_response("1", tokenizer)[-1] == 7
    assert loading.end_tokens(policy.model, tokenizer) == {7, 2}
