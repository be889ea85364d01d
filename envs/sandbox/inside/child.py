"""The test process: one program, one input. It gives up its rights, then becomes the program.

It should behave as `python3 main.py` would, with a real stdin and the interpreter's own ending.
"""

from __future__ import annotations

import _signal
import atexit
import json
import os
import resource
import sys

from envs.sandbox.inside.channel import write_all
from envs.sandbox.inside.kernel import (
    PR_SET_PDEATHSIG,
    capability_sets,
    prctl,
    set_capabilities,
)

RESULT_FILE = 3  # where a called function's result goes, out of the reach of print
_NO_CAPABILITIES = capability_sets()


def become_program(runner, files: list[int]) -> None:
    """Run the runner's program on (stdin, stdout, stderr). Never returns."""
    function = runner.fn_name
    enter_cage(runner, files)
    if "random" in sys.modules:
        sys.modules["random"].seed(0)  # the same program draws the same numbers: same verdict
    runner.server.started[0] = 1
    runner.server.started.close()
    code = 1
    try:
        exec(runner.code, runner.names)
        if function:
            call(runner.names, function)
        code = 0
    except SystemExit as error:
        code = exit_code(error.code)
    except MemoryError:
        os.write(2, b"MemoryError\n")  # a whole traceback would need memory
    except BaseException as error:
        trace = error.__traceback__.tb_next  # without this function's own frame
        sys.excepthook(type(error), error.with_traceback(trace), trace)
    os._exit(finish(code))


def enter_cage(runner, files: list[int]) -> None:
    """Give up descriptors and rights. Short: each page that it touches has to be copied."""
    os.setsid()  # a signal to its group reaches nobody else
    stdin, stdout, stderr = files
    os.dup2(stdin, 0)
    os.dup2(stderr, 2)
    if runner.fn_name:
        # Opened anew: flags of one open file that all programs share would tell of the others.
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        os.dup2(stdout, RESULT_FILE)
    else:
        os.dup2(stdout, 1)
    if runner.server.ruleset is not None:
        runner.server.ruleset.install()
    os.closerange(RESULT_FILE + 1 if runner.fn_name else RESULT_FILE, 256)
    for limit, value in runner.child_limits:
        resource.setrlimit(limit, (value, value))
    _signal.signal(_signal.SIGINT, _signal.default_int_handler)
    user, group = runner.server.config["uid"], runner.server.config["gid"]
    if user is None:
        set_capabilities(_NO_CAPABILITIES)
    else:  # leaving root clears them
        os.setgroups([])
        os.setresgid(group, group, group)
        os.setresuid(user, user, user)
    prctl(PR_SET_PDEATHSIG, _signal.SIGKILL)
    runner.server.filter.install()


def call(names: dict, function: str) -> None:
    """Call a function, or the method of Solution, on the JSON arguments; write its result."""
    solution = names.get("Solution")
    target = getattr(solution(), function) if hasattr(solution, function) else names[function]
    arguments = json.loads(sys.stdin.read())
    # Other iterables than lists and tuples become JSON lists too.
    write_all(RESULT_FILE, json.dumps(target(*arguments), default=list).encode())


def exit_code(value: object) -> int:
    """What the interpreter makes of `sys.exit(value)`."""
    if value is None:
        return 0
    if isinstance(value, int):
        return value & 0xFF
    print(value, file=sys.stderr)
    return 1


def finish(code: int) -> int:
    """What the interpreter does at its end: join threads, run atexit functions, flush."""
    try:
        if "threading" in sys.modules:
            sys.modules["threading"]._shutdown()
        atexit._run_exitfuncs()
    except BaseException as error:
        sys.excepthook(type(error), error, error.__traceback__)
    try:
        if sys.stdout is not None and not sys.stdout.closed:
            sys.stdout.flush()
    except Exception:
        return code or 120
    return code
