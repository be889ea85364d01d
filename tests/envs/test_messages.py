"""What a failed fetch of a data set is told as, from what the real client raises.

Without a network: tests/test_whole_runs.py. For models: tests/experiments/policy/test_loading.py.
"""

import os
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
REFUSALS = [  # status, the hub's code for the reason, and what is said of it
    (401, "RepoNotFound", "the hub has no dataset some/name"),
    (404, "RepoNotFound", "the hub has no dataset some/name"),
    (404, "RevisionNotFound", "the hub has no dataset some/name"),
    (403, "GatedRepo", "some/name is gated; accept its licence at https://huggingface.co/"),
    (401, "", "the hub refuses (401 Unauthorized)"),
    (403, "DisabledRepo", "the hub refuses (403 Forbidden)"),
]
SCRIPT = f"""
from envs.tasks.task import FilesConfig
from envs.tasks.rows import find_files
files = FilesConfig(test="ALL/test-*.parquet")
for case in range({len(REFUSALS)}):
    pinned = f"hf://datasets/some/name@{{case:040}}"
    try:
        find_files(pinned, "task.path", files)
    except ValueError as error:
        print(error)
"""


class Hub(BaseHTTPRequestHandler):
    """Answers a request for commit N as refusal N, with the hub's own header for the reason."""

    def do_GET(self):
        status, code, _ = REFUSALS[int(self.path.partition("0" * 39)[2][:1])]
        self.send_response(status)
        self.send_header("X-Error-Code", code)
        self.send_header("X-Error-Message", "as the hub says it")
        self.send_header("Content-Length", "0")
        self.end_headers()

    do_HEAD = do_POST = do_GET

    def log_message(self, *_):
        pass


@pytest.fixture(scope="module")
def lines(tmp_path_factory):
    """What is said of each refusal, all in one process: its imports take seconds."""
    server = HTTPServer(("127.0.0.1", 0), Hub)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    environment = os.environ | {
        "HF_HOME": str(tmp_path_factory.mktemp("hub")),
        "HF_ENDPOINT": f"http://127.0.0.1:{server.server_port}",
    }
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        timeout=600,
    )
    server.shutdown()
    server.server_close()
    return done.stdout.splitlines()


@pytest.mark.parametrize("case", range(len(REFUSALS)), ids=lambda case: str(REFUSALS[case][:2]))
def test_what_the_hub_refuses(case, lines):
    assert len(lines) == len(REFUSALS)
    assert lines[case].startswith("task.path=") and REFUSALS[case][2] in lines[case]
