"""Joining a Ray cluster that is not there."""

import socket
import time

import pytest

from experiments.errors import UserError
from experiments.runtime.ray import Connection
from tests.experiments.runtime.with_ray import needs_ray


@needs_ray
def test_an_address_at_which_nobody_answers_is_said_at_once():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))  # bound, and nobody listens
        address = f"127.0.0.1:{free.getsockname()[1]}"
        begin = time.monotonic()
        with pytest.raises(UserError, match=rf"runtime.address={address}: .*Connection refused"):
            Connection(address)
    assert time.monotonic() - begin < 30  # Ray itself would try for minutes
