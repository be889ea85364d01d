"""The zygote: a process that is only forked, and so has seen no program and no input.

The server reads programs, inputs and outputs, but is never forked. It requests processes over a
socket, by a byte for their kind and the files for them. A new process is the server's child.

The zygote forks one-shot tests and runners. Both read the program from a file and compile it. A
one-shot test then becomes the program. A runner is forked for each further test of its program, so
that it is compiled once. Neither sees an input but its own test's, and neither hears the host.
"""

from __future__ import annotations

import contextlib
import gc
import os
import signal
import struct
from _socket import AF_UNIX, CMSG_SPACE, SCM_RIGHTS, SOCK_SEQPACKET, SOL_SOCKET, socket
from _socket import socketpair as _socketpair
from collections.abc import Callable

from envs.sandbox.inside.confinement import Confinement, remove_contents
from envs.sandbox.inside.framing import join_body, report, write_all
from envs.sandbox.inside.interpreter import share_between_threads, share_stdout
from envs.sandbox.inside.kernel import PR_SET_PDEATHSIG, STACK_BYTES, Proc, fork_sibling, prctl
from envs.sandbox.inside.program import (
    Program,
    StartupStatus,
    bound_thread_stacks,
    compile_program,
    read_program_header,
)

TYPE_CHECKING = False  # `typing` is not loaded inside
if TYPE_CHECKING:
    from typing import Any, NoReturn

TEST, RUNNER, SWEEPER, CLEANER = b"T", b"R", b"S", b"C"
# Compiling a shorter text takes little of the allowance; after a longer one, the address space is
# measured.
SHORT_CHARS = 10_000
_PID_BYTES = _FILE_BYTES = 4
_ANCILLARY_BYTES = CMSG_SPACE(4 * _FILE_BYTES)  # for the files of one request
_COMPILED = join_body(report("FINISHED"))

Run = Callable[[bytes, "tuple[int, ...]"], None]  # of a new process: its kind and its files


# ---- requests for processes ----


def socketpair() -> tuple[socket, socket]:
    """Return two connected ends that keep messages apart."""
    return _socketpair(AF_UNIX, SOCK_SEQPACKET)


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


def serve_forks(end: socket, pid_namespace: bool, run: Run) -> NoReturn:
    """Fork a process that only calls `run` for each request, until the other end is closed.

    A test gets a PID namespace where there are any. All of this is short: after a fork, each page
    that either process writes to is copied.
    """
    while True:
        kind, rights, _, _ = end.recvmsg(1, _ANCILLARY_BYTES)
        if not kind:
            os._exit(0)
        data = rights[0][2] if rights else b""
        files = struct.unpack(f"{len(data) // _FILE_BYTES}i", data)
        pid = fork_sibling(new_pid_namespace=kind == TEST and pid_namespace)
        if pid == 0:
            try:
                run(kind, files)
            except BaseException as error:  # the sandbox itself failed: the startup status tells
                os.write(2, repr(error).encode())
            finally:
                os._exit(126)
        end.send(pid.to_bytes(_PID_BYTES, "big"))
        for file in files:
            os.close(file)


# ---- the zygote and its children ----


class Zygote:
    """The template of test processes and runners."""

    def __init__(self, confinement: Confinement, startup: StartupStatus, proc: Proc) -> None:
        self.confinement, self.startup, self.proc = confinement, startup, proc

    def serve(self, end: socket) -> NoReturn:
        """Serve the server's requests, which come over the socket `end`."""
        prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        self.confinement.own_pids.add(os.getpid())
        # If memory runs out, the kernel kills this process or its children first.
        victim = os.open("self/oom_score_adj", os.O_WRONLY, dir_fd=self.proc.folder)
        os.write(victim, b"1000")
        os.close(victim)
        self.end = end
        self.base_address_space = self.proc.address_space()  # before a program is compiled
        serve_forks(end, self.confinement.pid_namespace, self._run)

    def _run(self, kind: bytes, files: tuple[int, ...]) -> None:
        """Be a one-shot test, a runner, or what removes the traces of tests."""
        if kind == TEST:
            prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
            self._run_one_shot(files)
        elif kind == RUNNER:
            self.end.close()
            self._serve_tests(*files)
        else:
            self._remove_traces(kind)

    def _run_one_shot(self, files: tuple[int, ...]) -> NoReturn:
        """Compile the program in the first of the files, and become it on the other three."""
        program = self._prepare(files[0])
        if isinstance(program, dict):
            write_all(files[-1], program["stderr"].encode("utf-8", "replace"))
            self.startup.refuse(program["outcome"])
            os._exit(0)
        gc.freeze()  # existing objects are then copied less when the program collects garbage
        program.open_module()
        program.become(files[1:])

    def _serve_tests(self, file: int, end: int) -> NoReturn:
        """Be a runner: compile the program in a file, and be forked for each of its tests.

        The report of the compilation goes over a socket, over which the requests then come until it
        is closed. The tests are the server's children, and the server watches them: every page that
        this process writes to after a fork costs a fault.
        """
        prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        # Its kind is stated, since a container's filter forbids to ask the kernel for it.
        requests = socket(AF_UNIX, SOCK_SEQPACKET, 0, end)
        program = self._prepare(file)
        if isinstance(program, dict):
            requests.send(join_body(program))
            os._exit(0)
        requests.send(_COMPILED)
        gc.freeze()
        gc.collect()  # also empties the free lists, so that test processes need not
        program.open_module()

        def run(kind: bytes, streams: tuple[int, ...]) -> None:
            if kind == TEST:
                program.become(streams)
            self._remove_traces(kind)

        serve_forks(requests, self.confinement.pid_namespace, run)

    def _prepare(self, file: int) -> Program | dict[str, Any]:
        """Return the program in a file, ready but for its module; or the report of a refusal."""
        header = read_program_header(file)
        code = compile_program(header, self.base_address_space)
        if isinstance(code, dict):
            return code
        if header["threads"]:
            bound_thread_stacks(max(header["memory_mb"] << 20, STACK_BYTES))
        for name in header["modules"]:
            with contextlib.suppress(ImportError):  # the program's own import will raise it
                __import__(name)
        if "multiprocessing" in header["modules"]:
            share_between_threads()
        if header["names_stdout"]:
            share_stdout()
        short = not header["modules"] and len(header["source"]) < SHORT_CHARS
        base = self.base_address_space if short else self.proc.address_space()
        return Program(self.confinement, self.startup, code, header, base)

    def _remove_traces(self, kind: bytes) -> None:
        """End the processes that tests have left, or remove the files in their folder."""
        self.confinement.become_test_user()
        if kind == SWEEPER:
            os.kill(-1, signal.SIGKILL)
        elif self.confinement.folder is not None:
            remove_contents(self.confinement.folder.path)
