"""What is at the address of a Ray cluster, told apart without Ray's twenty lines."""

import os
import socket
import sys
import threading
from contextlib import contextmanager
from types import SimpleNamespace

import pytest

from experiments.config.preflight import check_before_start, ray_fault
from experiments.errors import UserError
from tests.compose import runtime_config
from tests.experiments.compose import config

HTTP_1 = b"HTTP/1.1 400 Bad Request\r\n\r\n"  # as of Ray's dashboard
HTTP_2 = b"\0\0\0\4\0\0\0\0\0"  # an empty SETTINGS frame


@contextmanager
def server(answer):
    """A server that answers each connection once; its address."""
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def serve():
            while True:
                try:
                    connection, _ = listening.accept()
                except OSError:
                    return
                connection.recv(100)
                connection.sendall(answer)
                connection.close()

        threading.Thread(target=serve, daemon=True).start()
        yield f"127.0.0.1:{listening.getsockname()[1]}"
        listening.shutdown(socket.SHUT_RDWR)


def joined_by(monkeypatch, client):
    monkeypatch.setitem(sys.modules, "ray._raylet", SimpleNamespace(GcsClient=client))


def test_a_server_of_another_kind_is_no_cluster():
    with server(HTTP_1) as address:
        assert ray_fault(address) == "what answers there is no Ray cluster"
    with server(b"") as address:
        assert ray_fault(address) == "what answers there is no Ray cluster"


def test_what_rays_own_client_says_is_one_line_and_its_log_is_silenced(monkeypatch, capfd):
    def refused(address):
        os.write(2, b"gcs_client.cc:210: Failed")
        raise RuntimeError("Method not\nfound")

    joined_by(monkeypatch, refused)
    with server(HTTP_2) as address:
        assert ray_fault(address) == "no Ray cluster answers there (Method not found)"
    assert capfd.readouterr().err == ""


def test_a_cluster_that_answers_has_no_fault(monkeypatch):
    asked = []
    joined_by(monkeypatch, lambda address: asked.append(address))
    with server(HTTP_2) as address:
        assert ray_fault(address) is None
    assert asked == [address]


def test_a_run_is_refused(tmp_path):
    with server(HTTP_1) as address:
        run = config(f"output_dir={tmp_path}")
        run.runtime = runtime_config(name="ray", address=address)
        with pytest.raises(UserError, match=f"runtime.address={address}: what answers there is no"):
            check_before_start([run])
