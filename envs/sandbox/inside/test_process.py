"""The test process: one program, one input. It gives up its rights, then becomes the program.

It behaves as `python3 main.py` would, with a real stdin and the interpreter's own shutdown.
"""

from __future__ import annotations

import _signal
import contextlib
import mmap
import os
import resource
import struct
import sys
import time

from envs.sandbox.inside.framing import write_all
from envs.sandbox.inside.interpreter import print_uncaught, shut_down
from envs.sandbox.inside.kernel import (
    PR_SET_PDEATHSIG,
    c_frame,
    capability_sets,
    current_frame,
    prctl,
    set_capabilities,
)
from envs.sandbox.inside.program import Program, call_function

TYPE_CHECKING = False  # `typing` is not loaded inside
if TYPE_CHECKING:
    from types import FrameType
    from typing import Any, NoReturn

    from envs.sandbox.inside.server import Server

RESULT_FILE = 3  # receives a called function's result, out of the reach of print
MAX_RECURSION_LIMIT = 2**31 - 1
_NO_CAPABILITIES = capability_sets()
_STARTING, _BEGUN = 0, 1
_REFUSALS = {2: "SYNTAX_ERROR", 3: "MEMORY_LIMIT"}
# State; CPU seconds that were used when the program began; the time then.
_STATUS_LAYOUT = struct.Struct("Bdd")


class StartupStatus:
    """A shared page that tells the server how far a test process is before its program begins.

    One test process at a time writes to it, and unmaps it afterwards.
    """

    def __init__(self) -> None:
        self._page = mmap.mmap(-1, _STATUS_LAYOUT.size)

    def reset(self) -> None:
        """Prepare for the next test process."""
        _STATUS_LAYOUT.pack_into(self._page, 0, _STARTING, 0.0, 0.0)

    def begin(self) -> None:
        """Say that the program comes next: time used so far is not its own.

        The server may look at any moment, so the first byte is written last.
        """
        now = time.process_time(), time.monotonic()
        _STATUS_LAYOUT.pack_into(self._page, 0, _STARTING, *now)
        self._page[0] = _BEGUN
        self._page.close()

    def refuse(self, outcome: str) -> None:
        """Say that there is no program to run."""
        self._page[0] = next(code for code, name in _REFUSALS.items() if name == outcome)

    @property
    def refused(self) -> str | None:
        """The outcome of a program that does not compile."""
        return _REFUSALS.get(self._page[0])

    @property
    def begun(self) -> tuple[float, float] | None:
        """CPU seconds used before the program began, and that time; None if it has not begun."""
        state, cpu_s, time_s = _STATUS_LAYOUT.unpack_from(self._page)
        return (cpu_s, time_s) if state == _BEGUN and time_s else None


def become_program(program: Program, files: tuple[int, ...]) -> NoReturn:
    """Run the program on (stdin, stdout, stderr)."""
    if "random" in sys.modules:
        # The same program draws the same numbers, and so gets the same verdict.
        sys.modules["random"].seed(0)
    give_up_rights(program, files)
    program.server.startup.begin()
    names, program.names = program.names, None
    status = run_program(program, names)
    del names  # nothing but the program itself may keep its objects alive
    shut_down(status, program)


def run_program(program: Program, names: dict[str, Any] | None) -> int:
    """Run the program, and call its function if it has one to call; return the exit status."""
    assert names is not None
    try:
        count_recursion_from_here()
        arguments = sys.stdin.read() if program.fn_name else ""  # out of the reach of input()
        if not program.sees_frames:
            exec(program.code, names)
        else:
            place = current_frame(c_frame.value, run_program.__code__)
            frame, place.value = place.value, None  # no caller is to be seen
            try:
                exec(program.code, names)
            finally:
                place.value = frame
        if program.fn_name:
            write_all(RESULT_FILE, call_function(names, program.fn_name, arguments))
        return 0
    except SystemExit as error:
        return exit_status(error.code)
    except MemoryError:
        os.write(2, b"MemoryError\n")  # a whole traceback would need memory
    except BaseException as error:
        try:
            print_uncaught(error)
        except SystemExit as exit_:  # the program's own hook decides
            return exit_status(exit_.code)
        except BaseException:
            os.write(2, b"an error in sys.excepthook\n")
    return 1


def count_recursion_from_here() -> None:
    """Make recursion limits count as in a script, which has nothing below its first frame.

    Otherwise a right program would fail slightly below the limit, and earlier in some tests.
    """
    set_limit, requested = sys.setrecursionlimit, sys.getrecursionlimit()
    below = int(sys.version_info < (3, 12))  # exec itself, which counted as a frame
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        frame, below = frame.f_back, below + 1

    def setrecursionlimit(limit: int, /) -> None:
        nonlocal requested
        valid = 0 < limit <= MAX_RECURSION_LIMIT
        set_limit(min(limit + below, MAX_RECURSION_LIMIT) if valid else limit)
        requested = int(limit)

    setrecursionlimit(requested)
    sys.setrecursionlimit, sys.getrecursionlimit = setrecursionlimit, lambda: requested


def give_up_rights(program: Program, files: tuple[int, ...]) -> None:
    """Give up descriptors and rights. Short: each page that it touches has to be copied."""
    server = program.server
    os.setsid()  # a signal to its group reaches nobody else
    stdin, stdout, stderr = files
    os.dup2(stdin, 0)
    os.dup2(stderr, 2)
    if program.fn_name:
        # Opened anew: the flags of one open file shared by all programs would be a channel.
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        os.dup2(stdout, RESULT_FILE)
    else:
        os.dup2(stdout, 1)
    if program.folder:
        os.chdir(program.folder)
    if server.landlock is not None:
        server.landlock[program.folder is not None].install()
    os.closerange(RESULT_FILE + 1 if program.fn_name else RESULT_FILE, 256)
    for limit, value in program.child_limits:
        resource.setrlimit(limit, (value, value))
    _signal.signal(_signal.SIGINT, _signal.default_int_handler)
    become_test_user(server)
    # Set again, since a change of user clears it; and the parent may have ended before.
    prctl(PR_SET_PDEATHSIG, _signal.SIGKILL)
    if os.getppid() not in server.own_pids | {0}:  # 0: outside of its PID namespace
        os._exit(1)
    seccomp = server.seccomp[program.folder is not None]
    if program.signals:
        seccomp.allow_own_signals()
    seccomp.install()


def become_test_user(server: Server) -> None:
    """Become the user that runs test processes, without any capability."""
    user, group = server.config["uid"], server.config["gid"]
    if user is None:
        set_capabilities(_NO_CAPABILITIES)
    else:  # leaving root clears them
        os.setgroups([])
        os.setresgid(group, group, group)
        os.setresuid(user, user, user)


def exit_status(value: object) -> int:
    """Return the exit status that the interpreter makes of `sys.exit(value)`."""
    if value is None:
        return 0
    if isinstance(value, int):
        return (value if abs(value) < 1 << 63 else -1) & 0xFF
    with contextlib.suppress(BaseException):
        print(value, file=sys.stderr or sys.__stderr__)
    return 1
