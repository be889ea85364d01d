"""What a failed fetch of a data set is told as, from what the real client raises.

For models: tests/experiments/test_models.py.
"""

import os
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PINNED = "hf://datasets/some/name@" + "0" * 40
SCRIPT = f"""
from envs.tasks.config import FilesConfig
from envs.tasks.storage.sources import find_sources
try:
    files = FilesConfig(test="ALL/test-*.parquet")
    next(find_sources(None, "{PINNED}", "task.path", files)["test"][0].read(0))
except ValueError as error:
    print(error)
"""


class Hub(BaseHTTPRequestHandler):
    """Answers every request with one status and the hub's own header for the reason."""

    def do_GET(self):
        self.send_response(self.server.status)
        self.send_header("X-Error-Code", self.server.code)
        self.send_header("X-Error-Message", "as the hub says it")
        self.send_header("Content-Length", "0")
        self.end_headers()

    do_HEAD = do_POST = do_GET

    def log_message(self, *_):
        pass


@pytest.fixture
def hub():
    server = HTTPServer(("127.0.0.1", 0), Hub)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield server
    server.shutdown()
    server.server_close()


def told(tmp_path, **environment):
    environment = os.environ | {"HF_HOME": str(tmp_path)} | environment
    command = [sys.executable, "-c", SCRIPT]
    return subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=600
    ).stdout.strip()


@pytest.mark.parametrize(
    ("status", "code", "said"),
    [
        (401, "RepoNotFound", "the hub has no dataset some/name"),
        (404, "RepoNotFound", "the hub has no dataset some/name"),
        (404, "RevisionNotFound", "the hub has no dataset some/name"),
        (403, "GatedRepo", "some/name is gated; accept its licence at https://huggingface.co/"),
        (401, "", "the hub refuses (401 Unauthorized)"),
        (403, "DisabledRepo", "the hub refuses (403 Forbidden)"),
    ],
)
def test_what_the_hub_refuses(hub, tmp_path, status, code, said):
    hub.status, hub.code = status, code
    line = told(tmp_path, HF_ENDPOINT=f"http://127.0.0.1:{hub.server_port}")
    assert line.startswith("task.path=") and said in line


def test_no_network(tmp_path):
    line = told(tmp_path, HF_HUB_OFFLINE="1")
    assert "the hub cannot be reached" in line and "task.path=FOLDER" in line
