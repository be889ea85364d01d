"""The script that starts an engine, on a machine without one."""

import os
import subprocess
from pathlib import Path

import pytest

ENGINE = Path(__file__).parents[2] / ".ci" / "engine"


def engine(*arguments: object) -> subprocess.CompletedProcess:
    return subprocess.run([ENGINE, *map(str, arguments)], capture_output=True, text=True)


def test_without_a_command_it_explains_itself():
    done = engine()
    assert done.returncode == 2
    assert "start [FOLDER]" in done.stderr
    assert done.stdout == "", "stdout is for eval"


def test_status_of_no_engine(tmp_path):
    done = engine("status", tmp_path)
    assert done.returncode == 3
    assert "does not answer" in done.stderr


def test_stop_ends_only_its_own_engine(tmp_path):
    other = subprocess.Popen(["sleep", "60"])
    (tmp_path / "docker.pid").write_text(str(other.pid))
    try:
        assert "not running" in engine("stop", tmp_path).stderr
        assert other.poll() is None
    finally:
        other.kill()
        other.wait()


@pytest.mark.skipif(os.geteuid() != 0, reason="anyone else is refused before the path is looked at")
def test_path_too_long_for_a_socket(tmp_path):
    done = engine("start", tmp_path / ("x" * 120))
    assert done.returncode == 1
    assert "too long" in done.stderr
    assert list(tmp_path.iterdir()) == []


@pytest.mark.skipif(os.geteuid() == 0, reason="root is let through")
def test_start_needs_root(tmp_path):
    done = engine("start", tmp_path)
    assert done.returncode == 1
    assert "root" in done.stderr
