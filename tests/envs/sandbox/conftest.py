"""An engine for the tests marked `docker`: one that answers is used, none is ever installed."""

import pytest


@pytest.fixture(scope="session")
def engine():
    """A client of an engine with the workers' image; skips where there is none."""
    from envs.sandbox.engine import connect, unavailable

    reason = unavailable()
    if reason:
        pytest.skip(f"Docker half not tested: {reason}")
    client = connect()
    yield client
    client.close()
