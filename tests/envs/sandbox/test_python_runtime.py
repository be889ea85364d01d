"""The image and its seccomp profile, seen from inside a container."""

import json
import re

import pytest

from envs.sandbox import python_runtime
from envs.sandbox.docker import worker_options
from envs.sandbox.python_runtime import base_python, image_tag
from envs.sandbox.seccomp import container_profile
from tests.envs.programs import tool

ALLOWED = {
    name
    for group in json.loads(container_profile())["syscalls"]
    if group["action"] == "SCMP_ACT_ALLOW"
    for name in group["names"]
}


def run_inside(engine, program: str) -> str:
    """The output of a Python program that is PID 1, root, and confined as a worker is."""
    command = [base_python(), "-I", "-S", "-c", program]
    options = worker_options(memory_mb=256, pids=32) | {"log_config": {"Type": "json-file"}}
    return engine.containers.run(image_tag(), command, remove=True, **options).decode()


@pytest.mark.parametrize("escape", ["bpf", "io_uring_setup", "keyctl", "mount", "ptrace", "setns",
    "unshare", "shmget", "semget", "msgget", "mq_open", "pivot_root", "userfaultfd",
    "perf_event_open", "process_vm_readv", "pidfd_getfd", "kexec_load", "init_module", "add_key",
    "open_by_handle_at", "swapon", "sethostname", "acct", "clone3"])  # fmt: skip
def test_no_way_out_is_on_the_list(escape):
    assert escape not in ALLOWED


def test_tag_follows_the_recipe_the_versions_and_the_interpreter(tmp_path, monkeypatch):
    recipe = tmp_path / "recipe.py"
    recipe.write_text("one")
    monkeypatch.setattr(python_runtime, "RECIPE", recipe)
    tags = {image_tag(), image_tag()}
    recipe.write_text("another")
    tags.add(image_tag())
    monkeypatch.setattr(python_runtime, "versions", lambda: "python 3.99.0rc1+, numpy 9.9")
    tags.add(image_tag())
    monkeypatch.setattr(python_runtime, "base_python", lambda: "/elsewhere/python")
    tags.add(image_tag())
    assert len(tags) == 4
    assert all(re.fullmatch(r"spo-bench-sandbox:[a-z0-9.-]+", tag) for tag in tags), tags


def test_nothing_is_allowed_that_only_other_programs_need():
    """Neither a program nor what starts it uses a network, makes links or answers to others.

    The server hands files to the zygote by sendmsg and recvmsg, over a pair of theirs, and changes
    modes; programs are refused these by their own filter (`test_seccomp.py`).
    """
    unneeded = """accept accept4 bind connect listen socket getsockopt setsockopt symlink symlinkat
        link linkat mknod mknodat truncate fallocate copy_file_range sendfile memfd_create vfork
        fork timerfd_create timer_create utimensat chmod flock sched_setscheduler
        personality setpgid tkill rt_sigqueueinfo rt_tgsigqueueinfo"""
    assert not ALLOWED & set(unneeded.split())


WRITABLE = tool("writable.py")


@pytest.mark.docker
def test_no_folder_is_writable_for_a_program(engine):
    other_user = (
        "import os; os.setgroups([]); os.setresgid(*[70000] * 3); os.setresuid(*[70000] * 3)"
    )
    assert json.loads(run_inside(engine, other_user + "\n" + WRITABLE)) == []
