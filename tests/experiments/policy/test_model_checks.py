"""Models that would write or learn garbage are refused before their weights are loaded."""

import json
import shutil
from dataclasses import replace

import pytest

from experiments.errors import UserError
from experiments.policy import loading
from experiments.policy.model_checks import check_lengths, check_tokens
from experiments.replay.sources import encode_response
from tests.compose import model_config, run_config
from tests.experiments.kinds import model_of

LIMIT = 64
ORIGINAL = {"original_max_position_embeddings": LIMIT}
FACTORS = {"short_factor": [1.0] * 4, "long_factor": [4.0] * 4}


def rope(kind, **parameters):
    return {"rope_parameters": {"rope_type": kind, "rope_theta": 1e4, "factor": 8.0, **parameters}}


@pytest.mark.parametrize(
    ("kind", "options", "limited"),
    [
        ("llama", rope("dynamic") | {"max_position_embeddings": LIMIT}, True),
        ("phi3", rope("longrope", **FACTORS) | ORIGINAL | {"max_position_embeddings": 999}, True),
        ("gpt2", {"n_positions": LIMIT}, True),
        ("llama", {"max_position_embeddings": LIMIT}, False),
        ("llama", rope("linear") | {"max_position_embeddings": LIMIT}, False),
    ],
)
def test_lengths_at_which_log_probs_depend_on_the_batch(kind, options, limited):
    default = run_config()
    for response, fits in ((LIMIT - 40, True), (LIMIT - 39, False)):
        task = replace(default.task, max_prompt_tokens=40, max_response_tokens=response)
        given = model_of(kind, **options).config, replace(default, task=task)
        if fits or not limited:
            check_lengths(*given)
        else:
            with pytest.raises(UserError, match=f"at most {LIMIT} together"):
                check_lengths(*given)


def change(file, **values):
    """Set keys of a JSON file; None removes one."""
    kept = json.loads(file.read_text()) | values
    file.write_text(json.dumps({key: kept[key] for key in kept if kept[key] is not None}))


@pytest.fixture
def mine(tmp_path):
    """The bundled model of 1,024 tokens."""
    return shutil.copytree("assets/nano", tmp_path / "mine")


def test_tokens_have_embeddings_and_one_ends_a_response(mine):
    tokenizer = loading.load_tokenizer(model_config(path=str(mine)))
    rows = {n: model_of("llama", vocab_size=n).config for n in (1000, 1024, 1100)}
    for number in (1024, 1100):
        check_tokens(tokenizer, rows[number], "mine", 1023)
    for given in ((rows[1000], 3), (rows[1024], 1024)):
        with pytest.raises(UserError, match="embeddings"):
            check_tokens(tokenizer, given[0], "mine", given[1])
    change(mine / "tokenizer_config.json", eos_token=None)
    change(mine / "generation_config.json", eos_token_id=None)
    with pytest.raises(UserError, match="no token ends a response"):
        check_tokens(loading.load_tokenizer(model_config(path=str(mine))), rows[1024], "mine", 3)


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
