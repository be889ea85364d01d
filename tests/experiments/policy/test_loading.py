"""Every way in which a model cannot be loaded ends in one line that names model.path."""

import json
import os
import shutil
import subprocess
import sys
import threading
import time
from contextlib import nullcontext
from http.server import HTTPServer
from pathlib import Path

import pytest

from experiments.config.schema import ModelConfig
from experiments.errors import UserError
from experiments.policy import loading
from tests.envs.test_hub_errors import Hub
from tests.experiments.kinds import model_of

ROOT = Path(__file__).resolve().parents[3]
NANO = ROOT / "assets" / "nano"
LOAD = """
from experiments.policy import loading as models
from experiments.config.schema import ModelConfig
from experiments.errors import UserError
try:
    models.load(ModelConfig(path="some/name"))
except UserError as error:
    print(error)
"""


class GatedHub(Hub):
    """As the real one: what a gated model is may be asked, its files may not be had."""

    def do_GET(self):
        if not self.path.startswith("/api/"):
            super().do_GET()
            return
        answer = json.dumps({"id": "some/name", "gated": "manual", "siblings": []}).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    do_HEAD = do_GET


def load_error(tmp_path, **environment):
    """Return the error of loading some/name, and the seconds it took."""
    environment = os.environ | {"HF_HOME": str(tmp_path)} | environment
    begin = time.monotonic()
    done = subprocess.run(
        [sys.executable, "-c", LOAD],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        timeout=600,
    )
    lines = done.stdout.splitlines()
    assert len(lines) == 1, done.stderr
    return lines[0], time.monotonic() - begin


HUBS = {
    "gated": (GatedHub, 403, "GatedRepo", ["licence at https://huggingface.co/some/name", "login"]),
    "unknown": (Hub, 404, "RepoNotFound", ["the hub has no model some/name"]),
    "private": (Hub, 401, "RepoNotFound", ["the hub has no model some/name that you may read"]),
    "bad token": (Hub, 401, "", ["refuses (401 Unauthorized)", "HF_TOKEN"]),
    "broken": (Hub, 500, "", ["cannot be reached", "model=local model.path=FOLDER"]),
    "too busy": (Hub, 429, "", ["cannot be reached"]),
}


@pytest.mark.parametrize("case", HUBS)
def test_the_hubs_answer_is_reported_at_once(case, tmp_path):
    handler, status, code, words = HUBS[case]
    server = HTTPServer(("127.0.0.1", 0), handler)
    server.status, server.code = status, code
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        line, seconds = load_error(tmp_path, HF_ENDPOINT=f"http://127.0.0.1:{server.server_port}")
    finally:
        server.shutdown()
        server.server_close()
    assert line.startswith("model.path=some/name: ")
    assert all(word in line for word in words), line
    assert seconds < 25  # imports take most of it; the client alone repeats itself for as long


NO_NETWORK = {
    "no name": {"HF_ENDPOINT": "http://nowhere.invalid"},
    "offline": {"HF_HUB_OFFLINE": "1"},
}


@pytest.mark.parametrize("case", NO_NETWORK)
def test_no_network_says_how_to_do_without(case, tmp_path):
    line, seconds = load_error(tmp_path, **NO_NETWORK[case])
    assert line.startswith("model.path=some/name: the hub cannot be reached")
    assert "`hf download some/name --local-dir FOLDER`" in line
    assert line.endswith("set model=local model.path=FOLDER here")
    assert seconds < 25


def cached(home):
    """The bundled model as if it had been fetched from the hub as some/name."""
    folder = home / "hub" / "models--some--name"
    shutil.copytree(NANO, folder / "snapshots" / "0123")
    (folder / "refs").mkdir()
    (folder / "refs" / "main").write_text("0123")


def test_what_was_fetched_before_is_used_without_network(tmp_path):
    cached(tmp_path)
    load = LOAD.replace('"some/name"))', '"some/name"))\n    print("loaded")')
    done = subprocess.run(
        [sys.executable, "-c", load],
        cwd=ROOT,
        env=os.environ | {"HF_HOME": str(tmp_path), "HF_ENDPOINT": "http://nowhere.invalid"},
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert done.stdout == "loaded\n", done.stderr


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
        loading.load(ModelConfig(path=str(tmp_path / "model")))
    line = str(raised.value)
    assert line.startswith(f"model.path={tmp_path}/model: cannot be loaded")
    assert word in line and "save_pretrained" in line and "\n" not in line


def test_broken_weights_are_one_line(tmp_path):
    shutil.copytree(NANO, tmp_path / "model")
    (weights,) = (tmp_path / "model").glob("*.safetensors")
    weights.write_bytes(weights.read_bytes()[:1000])
    with pytest.raises(UserError, match=r"model\.path=.*cannot be loaded"):
        loading.load(ModelConfig(path=str(tmp_path / "model")))


def test_a_folder_without_config_is_one_line(tmp_path):
    with pytest.raises(UserError, match=r"model\.path=.*no config\.json"):
        loading.load(ModelConfig(path=str(tmp_path)))


@pytest.mark.parametrize(("scale", "refused"), [(1.0, False), (4.0, True)])
def test_a_model_that_scales_its_logits_is_refused(scale, refused, tmp_path):
    _, tokenizer = loading.load(ModelConfig())
    tokenizer.save_pretrained(tmp_path)
    model_of("granite", logits_scaling=scale).save_pretrained(tmp_path)
    with pytest.raises(UserError, match="scale their logits") if refused else nullcontext():
        loading.load(ModelConfig(path=str(tmp_path)))
