"""The server and the zygote: small, since every page is copied or looked at for each test."""

import re
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from envs.sandbox.base import Job, Limits
from envs.sandbox.embedded import EmbeddedSandbox, form_unavailable
from envs.sandbox.inside import FLAGS, source
from envs.sandbox.inside.server import Server
from envs.sandbox.python_runtime import base_python
from tests.envs.processes import child_pids, command_line

OWN_KB = 4096  # above what an interpreter takes that has done nothing
SPAWNED = b"\0".join(flag.encode() for flag in FLAGS)
ANONYMOUS = re.compile(r"^Anonymous: +(\d+) kB", re.MULTILINE)


@pytest.fixture(scope="module", params=["namespaces", "landlock"])
def processes(request):
    """The folders in /proc of a worker's guard, server and zygote, after tests."""
    reason = form_unavailable(request.param)
    if reason:
        pytest.skip(f"this machine has no {request.param}: {reason}")
    with EmbeddedSandbox(workers=1, form=request.param) as sandbox:
        list(sandbox.run([Job("print(1)", ("", ""), Limits())], lambda *_: True))
        yield [Path(f"/proc/{pid}") for pid in eldest("self", 3)]


def eldest(pid, depth):
    """PIDs of eldest children, one below the other; a runner that ends meanwhile is younger."""
    if depth:
        child = min(c for c in child_pids(pid) if SPAWNED in command_line(c))
        yield child
        yield from eldest(child, depth - 1)


def test_no_process_holds_the_text_that_it_came_from(processes):
    for process in processes:
        assert len(command_line(process.name)) < len(source()) / 4


def test_the_zygote_is_hardly_larger_than_a_bare_interpreter(processes):
    look = "print(open('/proc/self/smaps').read())"
    command = [base_python(), *FLAGS, "-c", look]
    bare = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert anonymous(processes[2]) < sum(map(int, ANONYMOUS.findall(bare))) + OWN_KB


def test_forks_find_the_interpreters_code_where_it_is(processes):
    """The kernel copies page tables only of mappings that have a page of their own."""
    ease = "from envs.sandbox.inside.kernel import make_forks_cheaper as ease\n"
    ease += "ease(open('/proc/self/maps', 'rb').read()); print(open('/proc/self/smaps').read())"
    eased = subprocess.run([sys.executable, "-c", ease], capture_output=True, text=True, check=True)
    if not own_code_kb(eased.stdout):
        pytest.skip("this machine does not let code be written to")
    assert own_code_kb((processes[2] / "smaps").read_text())


def test_a_machines_own_counter_of_memory_kills_is_left_alone(processes):
    opened = [str(f.readlink()) for process in processes for f in (process / "fd").iterdir()]
    assert opened and not [name for name in opened if "memory." in name]


@pytest.mark.parametrize("before", ["low 0\noom 9\n", "oom_kill_disable 0\nunder_oom 0\n"])
def test_a_containers_memory_kills_are_told_once_each(tmp_path, before):
    counter = tmp_path / "memory.events"
    counter.write_text(f"{before}oom_kill 0\n")
    with counter.open() as opened:
        server = SimpleNamespace(_oom_counter=opened.fileno(), _oom_kills=0)
        answers = []
        for kills in (0, 1, 1, 3, 3):
            counter.write_text(f"{before}oom_kill {kills}\noom_group_kill 7\n")
            answers.append(Server.oom_killed(server))
    assert answers == [False, True, False, True, False]
    assert Server.oom_killed(SimpleNamespace(_oom_counter=-1))  # nobody else kills a test there


def own_code_kb(smaps):
    """Return the private part of the mapping with most code in memory, in kB."""
    code = re.findall(r"^\S+ r-xp .*?^Rss: +(\d+).*?^Anonymous: +(\d+)", smaps, re.M | re.S)
    return max((int(rss), int(own)) for rss, own in code)[1]


def anonymous(process):
    return sum(map(int, ANONYMOUS.findall((process / "smaps").read_text())))
