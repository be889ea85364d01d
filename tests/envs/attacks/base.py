"""Attack programs: their type, and the code that all of them begin with.

Each program tries something that a sandbox must refuse. It prints HELD if all was refused, else
BROKEN and a list. It knows what an attacker may know of the host: the path of a file, a port on
which the host listens, and the PID of a process.
"""

from __future__ import annotations

from dataclasses import dataclass

from envs.problem import Verdict

HELD = "HELD\n"

PRELUDE = '''
import errno, json, os, signal, sys
world = json.loads(sys.stdin.readline())
leaks = []

def attempt(name, action, *arguments):
    """Note it as a leak if the action succeeds; return what it returned."""
    try:
        result = action(*arguments)
    except (OSError, ImportError):
        return None
    leaks.append(name)
    return result

def finish():
    print("BROKEN:" + ",".join(leaks) if leaks else "HELD")
'''

SYSCALLS = '''
import ctypes
libc = ctypes.CDLL(None, use_errno=True)
COLUMN = {"x86_64": 0, "aarch64": 1}[os.uname().machine]
BUFFER = ctypes.create_string_buffer(4096)

def syscall(name, numbers, *arguments):
    """A leak if the kernel took the call, or refused it for its arguments only."""
    if numbers[COLUMN] is None:
        return None
    words = [ctypes.c_long(a) if isinstance(a, int) else a for a in arguments]
    result = libc.syscall(ctypes.c_long(numbers[COLUMN]), *words)
    if result != -1 or ctypes.get_errno() not in (errno.EPERM, errno.ENOSYS, errno.EACCES):
        leaks.append(name)
    return result
'''

ACCEPTED = frozenset({Verdict.ACCEPTED})


@dataclass(frozen=True)
class Attack:
    """A hostile program, and the verdicts that are right for it."""

    program: str
    verdicts: frozenset[Verdict] = ACCEPTED
    tests: int = 1  # how often it runs on its problem: more where one run could help the next
    fn_name: str | None = None
    padding: int = 0  # bytes of input after the first line
    hunts: bool = False  # the last test's expected output is a secret, so HELD is wrong there
    time_limit_s: float | None = None  # None: short where TIME_LIMIT is a right verdict

    @property
    def test_time_limit_s(self) -> float:
        """The time limit of the problem: programs that run into it should do so soon."""
        if self.time_limit_s is not None:
            return self.time_limit_s
        return 0.1 if Verdict.TIME_LIMIT in self.verdicts else 3.0


def probe(body: str, **fields: object) -> Attack:
    """A program that prints HELD or BROKEN at its end; `leaks` and `attempt` are at hand."""
    return Attack(PRELUDE + body + "\nfinish()\n", **fields)


def kernel_probe(body: str, **fields: object) -> Attack:
    """The same with `libc` and `syscall(name, (x86-64 number, aarch64 number), …)`."""
    return probe(SYSCALLS + body, **fields)


def ends(body: str, *verdicts: str, **fields: object) -> Attack:
    """A program whose verdict is one of those named."""
    return Attack(PRELUDE + body, frozenset(map(Verdict, verdicts)), **fields)
