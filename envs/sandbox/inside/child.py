"""The test process: one program, one input. It gives up its rights, then becomes the program.

It should behave as `python3 main.py` would, with a real stdin and the interpreter's own ending.
"""

from __future__ import annotations

import _signal
import contextlib
import os
import resource
import sys

from envs.sandbox.inside.calls import call
from envs.sandbox.inside.framing import write_all
from envs.sandbox.inside.interpreter_shutdown import end_interpreter, show
from envs.sandbox.inside.kernel import PR_SET_PDEATHSIG, capability_sets, prctl, set_capabilities

RESULT_FILE = 3  # where a called function's result goes, out of the reach of print
MOST_RECURSION = 2**31 - 1
_NO_CAPABILITIES = capability_sets()


def become_program(program, files: tuple[int, ...]) -> None:
    """Run the program on (stdin, stdout, stderr). Never returns."""
    if "random" in sys.modules:
        sys.modules["random"].seed(0)  # the same program draws the same numbers: same verdict
    enter_cage(program, files)
    program.server.stage.begin()
    names, program.names = program.names, None
    status = run(program, names)
    del names  # nothing but the program itself may keep them from their end
    end_interpreter(status, program)


def run(program, names: dict) -> int:
    """Run the program, and call its function if it has to be; return the exit status."""
    try:
        count_recursion_from_here()
        arguments = sys.stdin.read() if program.fn_name else ""  # out of the reach of input()
        exec(program.code, names)
        if program.fn_name:
            write_all(RESULT_FILE, call(names, program.fn_name, arguments))
        return 0
    except SystemExit as error:
        return exit_status(error.code)
    except MemoryError:
        os.write(2, b"MemoryError\n")  # a whole traceback would need memory
    except BaseException as error:
        try:
            show(error)
        except SystemExit as exit_:  # the program's own hook decides
            return exit_status(exit_.code)
        except BaseException:
            os.write(2, b"an error in sys.excepthook\n")
    return 1


def count_recursion_from_here() -> None:
    """Have recursion limits mean what they do to a script: it has nothing below its first frame.

    Else a right program would fail some hundredth below the limit, and earlier in some tests.
    """
    reserve, wanted = sys.setrecursionlimit, sys.getrecursionlimit()
    below = int(sys.version_info < (3, 12))  # exec itself, which counted as a frame
    frame = sys._getframe(1)
    while frame is not None:
        frame, below = frame.f_back, below + 1

    def setrecursionlimit(limit: int, /) -> None:
        nonlocal wanted
        reserve(min(limit + below, MOST_RECURSION) if 0 < limit <= MOST_RECURSION else limit)
        wanted = int(limit)

    setrecursionlimit(wanted)
    sys.setrecursionlimit, sys.getrecursionlimit = setrecursionlimit, lambda: wanted


def enter_cage(program, files: tuple[int, ...]) -> None:
    """Give up descriptors and rights. Short: each page that it touches has to be copied."""
    os.setsid()  # a signal to its group reaches nobody else
    stdin, stdout, stderr = files
    os.dup2(stdin, 0)
    os.dup2(stderr, 2)
    if program.fn_name:
        # Opened anew: flags of one open file that all programs share would tell of the others.
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        os.dup2(stdout, RESULT_FILE)
    else:
        os.dup2(stdout, 1)
    if program.server.ruleset is not None:
        program.server.ruleset.install()
    os.closerange(RESULT_FILE + 1 if program.fn_name else RESULT_FILE, 256)
    for limit, value in program.child_limits:
        resource.setrlimit(limit, (value, value))
    _signal.signal(_signal.SIGINT, _signal.default_int_handler)
    become_user(program.server)
    # Anew, since another user loses it; and the parent may have ended before.
    prctl(PR_SET_PDEATHSIG, _signal.SIGKILL)
    if os.getppid() not in program.server.ours | {0}:  # 0: outside of its PID namespace
        os._exit(1)
    program.server.filter.install()


def become_user(server) -> None:
    """Be who test processes are, without any capability."""
    user, group = server.config["uid"], server.config["gid"]
    if user is None:
        set_capabilities(_NO_CAPABILITIES)
    else:  # leaving root clears them
        os.setgroups([])
        os.setresgid(group, group, group)
        os.setresuid(user, user, user)


def exit_status(value: object) -> int:
    """What the interpreter makes of `sys.exit(value)`."""
    if value is None:
        return 0
    if isinstance(value, int):
        return (value if abs(value) < 1 << 63 else -1) & 0xFF
    with contextlib.suppress(BaseException):
        print(value, file=sys.stderr or sys.__stderr__)
    return 1
