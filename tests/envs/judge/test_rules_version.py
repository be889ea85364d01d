"""The version of the rules changes with the code that decides verdicts, and with nothing else."""

import shutil
from pathlib import Path

import pytest

import envs
from envs.judge.verdict_cache import rules_version

PACKAGE = Path(envs.__file__).parent


@pytest.fixture
def copy(tmp_path):
    return shutil.copytree(PACKAGE, tmp_path / "elsewhere" / "envs")


def test_a_copy_has_the_same_version_whatever_its_line_endings(copy):
    for file in copy.rglob("*.py"):
        file.write_bytes(file.read_bytes().replace(b"\n", b"\r\n"))
    assert rules_version(copy) == rules_version()


@pytest.mark.parametrize(
    "name",
    [
        *("problem.py", "judge/grading.py", "judge/testlib_files.cpp", "judge/new.py"),
        *("sandbox/system_calls.csv", "sandbox/pool.py", "sandbox/inside/framing.py"),
    ],
)
def test_a_change_of_what_decides_is_another_version(copy, name):
    with (copy / name).open("a") as file:
        file.write("#")
    assert rules_version(copy) != rules_version()


def test_what_decides_no_verdict_does_not_count(copy):
    for name in ("reward.py", "show.py", "sandbox/doctor.py"):
        (copy / name).write_text("changed = True\n")
    shutil.rmtree(copy / "tasks")
    assert rules_version(copy) == rules_version()
