"""The doctor: its checks are true, and the backend that it names follows from them."""

import os
import platform
import subprocess
import sys
from pathlib import Path

import pytest

from envs.sandbox import doctor
from envs.sandbox.doctor import Check, auto_backend, run_checks

ROOT = Path(__file__).parents[3]


def checks(*passed: str) -> list[Check]:
    names = ("Docker engine", "image", "user namespaces", "Landlock", "seccomp")
    return [Check(name, name in passed, "") for name in names]


@pytest.mark.parametrize(
    ("passed", "backend", "word"),
    [
        (("Docker engine", "image", "user namespaces", "seccomp"), "docker", "containers"),
        (("Docker engine", "user namespaces", "seccomp"), "embedded", "namespaces"),
        (("user namespaces", "Landlock", "seccomp"), "embedded", "namespaces"),
        (("Landlock", "seccomp"), "embedded", "weaker"),
        (("user namespaces", "Landlock"), "", "does not start"),
        ((), "", "does not start"),
    ],
)
def test_auto_takes_the_strongest_that_holds(passed, backend, word):
    taken, strength = auto_backend(checks(*passed))
    assert taken == backend
    assert word in strength


def test_every_lack_has_a_remedy(monkeypatch):
    monkeypatch.setenv("DOCKER_HOST", "unix:///nowhere/docker.sock")
    by_name = {check.name: check for check in run_checks()}
    assert not by_name["Docker engine"].passed
    assert ".ci/engine start" in by_name["Docker engine"].remedy
    assert platform.release() in by_name["machine"].detail
    assert all(check.passed or check.remedy for check in by_name.values())


def test_refused_namespaces_are_found_with_the_reason(monkeypatch):
    # Flags that do not exist get a real refusal from the kernel, on every machine.
    monkeypatch.setattr(doctor, "UNSHARE", doctor.UNSHARE.replace(str(doctor.NAMESPACES), "-1"))
    check = doctor.check_user_namespaces()
    assert not check.passed
    assert check.detail == "Invalid argument"
    assert check.remedy


def test_prints_a_table_and_the_backend():
    command = [sys.executable, "-m", "envs.sandbox.doctor"]
    shown = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, env=os.environ | {"COLUMNS": "200"}
    )
    expected, _ = auto_backend(run_checks())
    assert f"sandbox=auto takes {expected or 'nothing'}" in shown.stdout
    assert shown.returncode == (0 if expected else 1)
    assert "Landlock" in shown.stdout


@pytest.mark.docker
def test_sees_the_engine_and_the_image(engine):
    by_name = {check.name: check for check in run_checks()}
    assert engine.version()["Version"] in by_name["Docker engine"].detail
    assert by_name["image"].passed
    assert auto_backend(list(by_name.values()))[0] == "docker"
