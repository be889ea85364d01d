"""The zygote: a process that is only forked, and so has seen no program and no input.

The server reads programs, inputs and outputs, but is never forked. It requests processes over a
socket, by a byte for their kind and the files for them. A new process is the server's child.

The zygote forks one-shot tests and runners. Both read the program from a file and compile it. A
one-shot test then becomes the program. A runner is forked for each further test of its program, so
that it is compiled once. Neither sees an input but its own test's, and neither hears the host.
"""

from __future__ import annotations

import gc
import os
import signal
import struct
from _socket import AF_UNIX, CMSG_SPACE, SCM_RIGHTS, SOCK_SEQPACKET, SOL_SOCKET, socket
from _socket import socketpair as _socketpair
from collections.abc import Callable
from functools import partial

from envs.sandbox.inside.folder import remove_contents
from envs.sandbox.inside.framing import join_body, report, write_all
from envs.sandbox.inside.interpreter import print_uncaught, shut_down
from envs.sandbox.inside.kernel import PR_SET_PDEATHSIG, SeccompFilter, fork_sibling, prctl
from envs.sandbox.inside.program import (
    Program,
    SourceLoader,
    compile_program,
    prepare_program,
    read_program_header,
)
from envs.sandbox.inside.test_process import (
    StartupStatus,
    become_program,
    become_test_user,
    count_recursion_from_here,
    give_up_rights,
    run_program,
)

TYPE_CHECKING = False  # `typing` is not loaded inside
if TYPE_CHECKING:
    from typing import NoReturn

    from envs.sandbox.inside.server import Server

TEST, RUNNER, SWEEPER, CLEANER = b"T", b"R", b"S", b"C"
_PID_BYTES = _FILE_BYTES = 4
_ANCILLARY_BYTES = CMSG_SPACE(4 * _FILE_BYTES)  # for the files of one request
_COMPILED = join_body(report("FINISHED"))


# ---- requests for processes ----


def socketpair() -> tuple[socket, socket]:
    """Return two connected ends that keep messages apart."""
    return _socketpair(AF_UNIX, SOCK_SEQPACKET)


def socket_of(end: int) -> socket:
    """Return an end of a `socketpair` from its descriptor.

    Its kind is stated, since a container's filter forbids to ask the kernel for it.
    """
    return socket(AF_UNIX, SOCK_SEQPACKET, 0, end)


class ForkClient:
    """The server's end: requests processes, which become the server's own children."""

    def __init__(self, end: socket) -> None:
        self._end = end

    def fork(self, kind: bytes, files: list[int]) -> int:
        """Return the PID of a new process that got these files. Exits if the other end is gone."""
        rights = struct.pack(f"{len(files)}i", *files)
        try:
            self._end.sendmsg([kind], [(SOL_SOCKET, SCM_RIGHTS, rights)])
            pid = self._end.recv(_PID_BYTES)
        except ConnectionError:
            os._exit(1)
        if not pid:
            os._exit(1)
        return int.from_bytes(pid, "big")


def serve_forks(end: socket, start: Callable[[bytes, tuple[int, ...]], int]) -> NoReturn:
    """Call `start`, which forks, for each request, until the other end is closed.

    `start` returns the PID here, and never returns in the new process. All of this is short: after
    a fork, each page that either process writes to is copied.
    """
    while True:
        kind, rights, _, _ = end.recvmsg(1, _ANCILLARY_BYTES)
        if not kind:
            os._exit(0)
        data = rights[0][2] if rights else b""
        files = struct.unpack(f"{len(data) // _FILE_BYTES}i", data)
        end.send(start(kind, files).to_bytes(_PID_BYTES, "big"))
        for file in files:
            os.close(file)


def _spawn(server: Server, kind: bytes, run: Callable[..., None], *arguments: object) -> int:
    """Fork a process that only calls `run`; a test gets a PID namespace where there are any."""
    pid = fork_sibling(new_pid_namespace=kind == TEST and server.config["pid_namespace"])
    if pid == 0:
        try:
            run(server, *arguments)
        except BaseException as error:  # the sandbox itself failed: the startup status tells
            os.write(2, repr(error).encode())
        finally:
            os._exit(126)
    return pid


# ---- children of the zygote ----


def fork_from_zygote(server: Server, end: socket, kind: bytes, files: tuple[int, ...]) -> int:
    """Fork a one-shot test, a runner, or what removes the traces of tests."""
    return _spawn(server, kind, _run_in_child_of_zygote, end, kind, files)


def _run_in_child_of_zygote(
    server: Server, end: socket, kind: bytes, files: tuple[int, ...]
) -> None:
    if kind == TEST:
        prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        run_one_shot(server, files)
    elif kind == RUNNER:
        end.close()
        serve_tests(server, *files)
    else:
        remove_traces(server, kind)


def remove_traces(server: Server, kind: bytes) -> None:
    """End the processes that tests have left, or remove the files in their folder."""
    if kind == SWEEPER:
        sweep(server)
    elif kind == CLEANER and server.folder is not None:
        become_test_user(server)
        remove_contents(server.folder.path)


def sweep(server: Server) -> None:
    """End all processes of the user that runs test processes."""
    become_test_user(server)
    os.kill(-1, signal.SIGKILL)


def run_one_shot(server: Server, files: tuple[int, ...]) -> NoReturn:
    """Compile the program in the first of the files, and become it on the other three."""
    program = prepare_program(server, files[0])
    if isinstance(program, dict):
        write_all(files[-1], program["stderr"].encode("utf-8", "replace"))
        server.startup.refuse(program["outcome"])
        os._exit(0)
    gc.freeze()  # existing objects are then copied less when the program collects garbage
    program.open_module()
    become_program(program, files[1:])


def serve_tests(server: Server, file: int, end: int) -> NoReturn:
    """Be a runner: compile the program in a file, and be forked for each of its tests.

    The report of the compilation goes over a socket, over which the requests then come until it is
    closed. The tests are the server's children, and the server watches them: every page that this
    process writes to after a fork costs a fault.
    """
    prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    requests = socket_of(end)
    program = prepare_program(server, file)
    if isinstance(program, dict):
        requests.send(join_body(program))
        os._exit(0)
    requests.send(_COMPILED)
    gc.freeze()
    gc.collect()  # also empties the free lists, so that test processes need not
    program.open_module()
    serve_forks(requests, partial(_fork_from_runner, program))


def _fork_from_runner(program: Program, kind: bytes, streams: tuple[int, ...]) -> int:
    return _spawn(program.server, kind, _run_in_child_of_runner, program, kind, streams)


def _run_in_child_of_runner(
    server: Server, program: Program, kind: bytes, streams: tuple[int, ...]
) -> None:
    if kind == TEST:
        become_program(program, streams)
    else:
        remove_traces(server, kind)


# What a test process runs, and on what: for `fill_lookup_cache`.
TEST_FUNCTIONS = (
    *(run_one_shot, prepare_program, read_program_header, compile_program),
    *(Program.__init__, Program.open_module, Program._limit_all, SourceLoader.__init__),
    *(become_program, give_up_rights, prctl, become_test_user, SeccompFilter.install),
    *(StartupStatus.begin, run_program, count_recursion_from_here, print_uncaught, shut_down),
)
TEST_TYPES = (Program, SourceLoader, StartupStatus, SeccompFilter)
