"""What a failed fetch of a data set is told as, from what the real client raises.

Without a network: tests/test_whole_runs.py. For models: tests/experiments/policy/test_loading.py.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.hub import refusing

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


def answer(path):
    """Refuse a request for commit N as case N."""
    return *REFUSALS[int(path.partition("0" * 39)[2][:1])][:2], b""


@pytest.fixture(scope="module")
def lines(tmp_path_factory):
    """What is said of each refusal, all in one process: its imports take seconds."""
    with refusing(answer) as endpoint:
        place = {"HF_HOME": str(tmp_path_factory.mktemp("hub")), "HF_ENDPOINT": endpoint}
        done = subprocess.run(
            [sys.executable, "-c", SCRIPT],
            cwd=ROOT,
            env=os.environ | place,
            capture_output=True,
            text=True,
            timeout=600,
        )
    return done.stdout.splitlines()


@pytest.mark.parametrize("case", range(len(REFUSALS)), ids=lambda case: str(REFUSALS[case][:2]))
def test_what_the_hub_refuses(case, lines):
    assert len(lines) == len(REFUSALS)
    assert lines[case].startswith("task.path=") and REFUSALS[case][2] in lines[case]
