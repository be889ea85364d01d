"""What all tests share."""

import os
import signal

import pytest


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers():
    """One more than there are cores: tests of limits and of lost networks wait."""
    return len(os.sched_getaffinity(0)) + 1


@pytest.fixture(scope="session", autouse=True)
def interrupts_arrive():
    """A shell starts background jobs with SIGINT ignored, and children inherit that."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.fixture(scope="session", autouse=True)
def cache_of_its_own(tmp_path_factory):
    """Data sets that tests prepare stay apart from the user's; child processes inherit it."""
    before = os.environ.get("SPO_BENCH_CACHE")
    os.environ["SPO_BENCH_CACHE"] = str(tmp_path_factory.mktemp("cache"))
    yield
    if before is None:
        del os.environ["SPO_BENCH_CACHE"]
    else:
        os.environ["SPO_BENCH_CACHE"] = before


@pytest.fixture(scope="session")
def engine():
    """A client of a Docker engine with the workers' image; one that answers is used, none is ever
    installed, and where there is none the tests marked `docker` are skipped."""
    from envs.sandbox.docker_client import connect, unavailable

    reason = unavailable()
    if reason:
        pytest.skip(f"Docker half not tested: {reason}")
    client = connect()
    yield client
    client.close()
