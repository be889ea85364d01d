"""A locked-up engine: it reports its version and answers nothing else."""

import http.server
import json
import socketserver
import threading

import pytest

from envs.sandbox import docker, docker_client, doctor
from envs.sandbox.docker import Launcher


class Locked(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        if not self.path.endswith("/version"):
            self.server.unlocked.wait(30)
            return
        answer = json.dumps({"Version": "20.10.24", "ApiVersion": "1.41"}).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def address_string(self):
        return "a unix socket"

    def log_message(self, *_):
        pass


class Server(socketserver.ThreadingMixIn, socketserver.UnixStreamServer):
    daemon_threads = True


@pytest.fixture
def locked_engine(tmp_path, monkeypatch):
    for module in (docker_client, doctor, docker):
        monkeypatch.setattr(module, "ANSWER_S", 1.0)
    with Server(str(tmp_path / "docker.sock"), Locked) as server:
        server.unlocked = threading.Event()
        threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
        monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/docker.sock")
        yield
        server.unlocked.set()
        server.shutdown()


def test_it_is_not_available(locked_engine):
    assert "does not answer" in docker_client.unavailable()


def test_doctor_finds_it_as_good_as_none(locked_engine):
    [check] = doctor.check_engine()
    assert not check.passed
    assert "timed out" in check.detail


def test_a_sandbox_closes_all_the_same(locked_engine, caplog):
    launcher = Launcher(workers=0, memory_mb=64, pids=8, patience_s=0.0)
    launcher.close()
    assert f"containers of {launcher.run_id} may be left" in caplog.text
