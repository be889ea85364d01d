"""What all tests share."""

import gc
import os
import signal
import sys

import pytest


def pytest_collectstart():
    gc.disable()  # imports and collected tests stay: there is next to no garbage among them


# Begun first, so that none is left alone at the end: few tests, each of many seconds.
LONG_FILES = (
    "config/test_resume.py",
    "experiments/test_trainer.py",
    "tests/test_sweeps.py",
    "runtime/test_torchrun.py",
    "experiments/test_frozen.py",
    "experiments/test_shared_verdict_cache.py",
    "policy/test_loading.py",
)


def pytest_collection_modifyitems(items):
    """Files in the order in which workers take them; those not named keep theirs."""

    def place(item):
        path = item.path.as_posix()
        return next(
            (i for i, file in enumerate(LONG_FILES) if path.endswith(file)), len(LONG_FILES)
        )

    items.sort(key=place)


def pytest_collection_finish():
    """Set aside what imports and collection made: each Ledger collects garbage, and scanning a
    million lasting objects took ten times as long as a step of a tiny model."""
    gc.freeze()
    gc.enable()


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers():
    """Two more than there are cores: tests of limits and of lost networks wait."""
    return len(os.sched_getaffinity(0)) + 2


@pytest.fixture(scope="session", autouse=True)
def interrupts_arrive():
    """A shell starts background jobs with SIGINT ignored, and children inherit that."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.fixture(autouse=True)
def denormal_numbers():
    """A run flushes them for its whole process; Hypothesis, for one, needs them."""
    yield
    if torch := sys.modules.get("torch"):
        torch.set_flush_denormal(False)


@pytest.fixture(scope="session", autouse=True)
def cache_of_its_own(tmp_path_factory):
    """Data sets that tests prepare stay apart from the user's; child processes inherit it.

    The workers of one session share the generated problems alone, which take seconds to make.
    """
    before = os.environ.get("SPO_BENCH_CACHE")
    cache = tmp_path_factory.mktemp("cache")
    if "PYTEST_XDIST_WORKER" in os.environ:
        made = tmp_path_factory.getbasetemp().parent / "made"
        made.mkdir(exist_ok=True)
        (cache / "made").symlink_to(made)
    os.environ["SPO_BENCH_CACHE"] = str(cache)
    yield
    if before is None:
        del os.environ["SPO_BENCH_CACHE"]
    else:
        os.environ["SPO_BENCH_CACHE"] = before


@pytest.fixture
def call_here(monkeypatch, capfd):
    """A function that runs `run.py` with the arguments given to it, in this process, off line."""
    from tests.command_line import main_here

    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    return lambda *arguments: main_here(monkeypatch, capfd, arguments)


@pytest.fixture(scope="session")
def engine():
    """A client of a Docker engine with the workers' image; one that answers is used, none is ever
    installed, and where there is none the tests marked `docker` are skipped."""
    from envs.sandbox.docker import connect, unavailable

    reason = unavailable()
    if reason:
        pytest.skip(f"Docker half not tested: {reason}")
    client = connect()
    yield client
    client.close()
