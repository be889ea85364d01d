"""The image and its seccomp profile, seen from inside a container."""

import json
import platform
import re
from pathlib import Path

import pytest

from envs.sandbox.docker_client import worker_options
from envs.sandbox.image import image_tag
from envs.sandbox.python_runtime import PACKAGES_FOLDER, base_python, versions
from envs.sandbox.seccomp import container_profile

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
    monkeypatch.setattr("envs.sandbox.image.RECIPE", (recipe,))
    tags = {image_tag(), image_tag()}
    recipe.write_text("another")
    tags.add(image_tag())
    monkeypatch.setattr("envs.sandbox.image.versions", lambda: "python 3.99.0rc1+, numpy 9.9")
    tags.add(image_tag())
    monkeypatch.setattr("envs.sandbox.image.base_python", lambda: "/elsewhere/python")
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
        fork timerfd_create timer_create utimensat chmod flock sched_setscheduler sched_setaffinity
        setpriority personality setpgid tkill rt_sigqueueinfo rt_tgsigqueueinfo"""
    assert not ALLOWED & set(unneeded.split())


REFUSED = {  # x86-64 numbers, arguments that would do something, and the error that must come
    "ptrace(TRACEME)": (101, (0, 0, 0, 0), "EPERM"),
    "io_uring_setup": (425, (8, 0), "EPERM"),
    "shmget": (29, (0, 4096, 0o1666), "EPERM"),
    "semget": (64, (0, 1, 0o1666), "EPERM"),
    "msgget": (68, (0, 0o1666), "EPERM"),
    "keyctl": (250, (0, -3, 1), "EPERM"),
    "bpf": (321, (0, 0, 0), "EPERM"),
    "unshare(NEWUSER)": (272, (0x10000000,), "EPERM"),
    "clone(NEWUSER)": (56, (0x10000000, 0, 0, 0, 0), "EPERM"),
    "clone3": (435, (0, 0), "ENOSYS"),
    "mount": (165, (0, 0, 0, 0, 0), "EPERM"),
    "socket(AF_INET)": (41, (2, 1, 0), "EPERM"),
    "socket(AF_NETLINK)": (41, (16, 3, 0), "EPERM"),
    "personality(READ_IMPLIES_EXEC)": (135, (0x0400000,), "EPERM"),
}

SYSCALLS = """
import ctypes, errno, json
libc = ctypes.CDLL(None, use_errno=True)
errors = {}
for name, (number, arguments) in json.loads(%r).items():
    ctypes.set_errno(0)
    result = libc.syscall(ctypes.c_long(number), *map(ctypes.c_long, arguments))
    errors[name] = errno.errorcode.get(ctypes.get_errno(), "none") if result == -1 else "done"
print(json.dumps(errors))
"""


@pytest.mark.docker
@pytest.mark.skipif(platform.machine() != "x86_64", reason="the numbers are x86-64's")
def test_profile_refuses_what_a_program_may_not_do(engine):
    calls = {name: (number, arguments) for name, (number, arguments, _) in REFUSED.items()}
    errors = json.loads(run_inside(engine, SYSCALLS % json.dumps(calls)))
    assert errors == {name: error for name, (_, _, error) in REFUSED.items()}


WRITABLE = """
import json, os
writable = []
for folder, names, files in os.walk("/", followlinks=False):
    if folder in ("/proc", "/sys"):
        names.clear()
        continue
    try:
        open(os.path.join(folder, "mark"), "w").close()
        os.unlink(os.path.join(folder, "mark"))
        writable.append(folder)
    except OSError:
        pass
print(json.dumps(writable))
"""


@pytest.mark.docker
def test_no_folder_is_writable_for_a_program(engine):
    other_user = (
        "import os; os.setgroups([]); os.setresgid(*[70000] * 3); os.setresuid(*[70000] * 3)"
    )
    assert json.loads(run_inside(engine, other_user + "\n" + WRITABLE)) == []


@pytest.mark.docker
def test_python_is_whole_and_compiled(engine):
    program = """
import asyncio, bisect, collections, ctypes, decimal, fractions, heapq, itertools, json, re, sqlite3
import platform, threading, sys, random
threads = [threading.Thread(target=asyncio.run, args=(asyncio.sleep(0),)) for _ in range(3)]
[thread.start() for thread in threads]
[thread.join() for thread in threads]
print(open(random.__cached__, "rb").read(8)[4:5] == b"\\x01")
sys.path.append(%r)
import numpy
print(numpy.linalg.inv(numpy.eye(2) / 2).sum(), len(numpy.fft.fft([1, 2, 3])))
print(f"python {platform.python_version()}, numpy {numpy.__version__}")
"""
    *values, last = run_inside(engine, program % PACKAGES_FOLDER).splitlines()
    assert values == ["True", "4.0 3"]
    assert last == versions()


@pytest.mark.docker
def test_nothing_of_the_host_is_seen(engine):
    program = (
        "import os; print(sorted(os.environ), os.uname().nodename, os.listdir('/sys/class/net'))"
    )
    output = run_inside(engine, program)
    assert Path("/proc/sys/kernel/hostname").read_text().strip() not in output
    assert "'lo'" in output and "eth" not in output
