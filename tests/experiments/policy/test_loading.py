"""Every way in which a model cannot be loaded ends in one line that names model.path."""

import json
import os
import shutil
import subprocess
import sys
import threading
from contextlib import contextmanager, nullcontext
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest
import torch

from experiments.errors import UserError
from experiments.policy import loading
from tests.compose import model_config
from tests.experiments.kinds import model_of

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


@contextmanager
def serving(handler):
    """Yield the endpoint of a hub on this machine."""
    server = HTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()


class HubOfCases(BaseHTTPRequestHandler):
    """Answers each model's requests as HUBS says; what a gated model is may be asked."""

    def do_GET(self):
        name = next((name for name in HUBS if f"/{name}" in self.path), "some/unknown")
        status, code, _ = HUBS[name]
        body = b""
        if name == "some/gated" and self.path.startswith("/api/"):
            status, body = 200, json.dumps({"id": name, "gated": "manual", "siblings": []}).encode()
        self.send_response(status)
        self.send_header("X-Error-Code", code)
        self.send_header("X-Error-Message", "as the hub says it")
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass

    do_HEAD = do_GET


@pytest.fixture(scope="module")
def refusals(tmp_path_factory):
    """What loading each model of HUBS comes to."""
    with serving(HubOfCases) as endpoint:
        return load(tmp_path_factory.mktemp("hub"), *HUBS, HF_ENDPOINT=endpoint)


@pytest.mark.parametrize("name", HUBS)
def test_the_hubs_answer_is_reported_at_once(name, refusals):
    line, seconds = refusals[name]
    assert line.startswith(f"model.path={name}: ")
    assert all(word in line for word in HUBS[name][-1]), line
    assert seconds < 20  # the client alone repeats itself for longer


def fetch_before(home):
    """Place the model some/cached where the client keeps what it fetched."""
    folder = home / "hub" / "models--some--cached"
    shutil.copytree(NANO, folder / "snapshots" / "0123")
    (folder / "refs").mkdir()
    (folder / "refs" / "main").write_text("0123")


@pytest.fixture(scope="module")
def without_name_server(tmp_path_factory):
    """What loading a model comes to, and one that was fetched before, where no name is known."""
    home = tmp_path_factory.mktemp("home")
    fetch_before(home)
    return load(home, "some/name", "some/cached", HF_ENDPOINT="http://nowhere.invalid")


def test_without_network_only_what_was_fetched_before_is_loaded(without_name_server):
    line, seconds = without_name_server["some/name"]
    assert line.startswith("model.path=some/name: the hub cannot be reached") and seconds < 20
    assert without_name_server["some/cached"][0] == "loaded"


CONFIGS = {
    "not JSON": ("{", "not a valid JSON file"),
    "no type": ("{}", "model_type"),
    "unknown type": ('{"model_type": "nosuch"}', "nosuch"),
    "wrong value": ('{"model_type": "llama", "num_hidden_layers": "x"}', "num_hidden_layers"),
    "not causal": ('{"model_type": "t5"}', "T5Config"),
}


@pytest.mark.parametrize("case", CONFIGS)
def test_a_broken_config_is_one_line(case, tmp_path):
    shutil.copytree(NANO, tmp_path / "model")
    text, word = CONFIGS[case]
    (tmp_path / "model" / "config.json").write_text(text)
    with pytest.raises(UserError) as raised:
        loading.load(model_config(path=str(tmp_path / "model")))
    line = str(raised.value)
    assert line.startswith(f"model.path={tmp_path}/model: cannot be loaded")
    assert word in line and "save_pretrained" in line and "\n" not in line


def test_broken_weights_are_one_line(tmp_path):
    shutil.copytree(NANO, tmp_path / "model")
    (weights,) = (tmp_path / "model").glob("*.safetensors")
    weights.write_bytes(weights.read_bytes()[:1000])
    with pytest.raises(UserError, match=r"model\.path=.*cannot be loaded"):
        loading.load(model_config(path=str(tmp_path / "model")))


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
