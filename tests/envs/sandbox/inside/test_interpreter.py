"""Shutdown of programs: exit status and output equal those of a plain python3."""

import subprocess
import sys

import pytest

from envs.sandbox.base import Job, Limits
from envs.sandbox.embedded import EmbeddedSandbox, strongest_form
from envs.sandbox.inside.interpreter import NOTICING

FILE = "out = open(1, 'w')\n"
LOUD = "class A:\n    def __init__(s, n): s.n = n\n    def __del__(s): print(s.n)\n"
PROGRAMS = {
    "stdout closed below": "import os\nprint(1)\nos.close(1)",
    "stdout closed below, exit 3": "import os, sys\nprint(1)\nos.close(1)\nsys.exit(3)",
    "__stdout__ closed below": (
        "import os, sys\nsys.stdout = None\nsys.__stdout__.write('x')\nos.close(1)"
    ),
    "a stdout that cannot flush": (
        "import sys\n"
        "class Out:\n    def write(s, x): pass\n    def flush(s): raise ValueError\n"
        "sys.stdout = Out()"
    ),
    "a stdout without flush": (
        "import sys\nclass Out:\n    def write(s, x): pass\nsys.stdout = Out()"
    ),
    "a stderr that cannot flush": (
        "import sys\n"
        "class Out:\n    def write(s, x): pass\n    def flush(s): raise ValueError\n"
        "sys.stderr = Out()\nprint(1)"
    ),
    "stdout detached and left": "import sys\nsys.stdout.detach().write(b'x')",
    "stdout detached and kept": "import sys\nout = sys.stdout.detach()\nout.write(b'x')",
    "a stdout with a refusing flush": (
        "import sys\nclass Out:\n    def write(s, x): pass\n    flush = None\nsys.stdout = Out()"
    ),
    "stdout deleted": "import sys\nprint(1)\ndel sys.stdout",
    "both deleted": "import sys\nprint(1)\ndel sys.stdout, sys.__stdout__",
    "the buffer closed": "import sys\nprint(1, flush=True)\nsys.stdout.buffer.close()",
    "printed after closing": "import sys\nprint(1)\nsys.stdout.close()\nprint(2)",
    "exit 256": "import sys\nsys.exit(256)",
    "exit -1": "import sys\nsys.exit(-1)",
    "exit beyond a long": "import sys\nsys.exit(2**70)",
    "exit with a float": "import sys\nsys.exit(0.0)",
    "exit with an empty text": "import sys\nsys.exit('')",
    "exit with what has no text": (
        "import sys\nclass A:\n    def __str__(s): 1 / 0\nsys.exit(A())"
    ),
    "exit with a text, no stderr": "import sys\nsys.stderr = None\nsys.exit('x')",
    "a kind of SystemExit": "class E(SystemExit): pass\nraise E(4)",
    "a hook that fails": "import sys\nsys.excepthook = lambda *_: 1 / 0\nprint(1)\n1 / 0",
    "a hook that exits": "import sys\nsys.excepthook = lambda *_: sys.exit(5)\n1 / 0",
    "no hook": "import sys\nsys.excepthook = None\nprint(1)\n1 / 0",
    "an exit function after an exception": "import atexit\natexit.register(print, 'a')\n1 / 0",
    "an exit function that ends all": "import atexit, os\natexit.register(os._exit, 3)",
    "an exit function that adds one": (
        "import atexit\natexit.register(lambda: atexit.register(print, 2))\nprint(1)"
    ),
    "__del__ that fails": "class A:\n    def __del__(s): 1 / 0\na = A()\nprint(1)",
    "__del__ that ends all": "import os\nclass A:\n    def __del__(s): os._exit(7)\na = A()",
    "the order of __del__": LOUD + "a = A(1)\nb = [A(2), A(3)]\n_c = A(4)",
    "the order of __del__ in cycles": LOUD + "a = A(1)\nb = [A(2), A(3)]\ndef f(): pass",
    "__del__ of what a module holds": LOUD + "import math\nmath.a = A(1)",
    "__del__ of what builtins hold": LOUD + "import builtins\nbuiltins.a = A(1)",
    "__del__ that revives": LOUD
    + "class B: pass\nA.__del__ = lambda s: setattr(B, 'b', s)\na = A(1)",
    "a callback of a weak reference": (
        "import weakref\nclass A: pass\na = A()\nr = weakref.ref(a, lambda _: print('gone'))"
    ),
    "a file under a generic class": FILE + "import typing\nT = typing.TypeVar('T')\n"
    "class A(typing.Generic[T]):\n    def f(s) -> 'A[T]': out.write('1')\n"
    "class N: pass\nB, C = A[int], typing.Optional[N]\nA().f()",
    "a file in a context variable": (
        "import contextvars\nv = contextvars.ContextVar('v')\nv.set(open(1, 'w'))\n"
        "v.get().write('x')"
    ),
    "a file in a module of one's own": (
        "import sys, types\nsys.modules['m'] = m = types.ModuleType('m')\n"
        "m.out = open(1, 'w', closefd=False)\nm.out.write('m')\nprint(1)"
    ),
    "a file behind a trace function": FILE
    + "import sys\nsys.settrace(lambda *_: None)\ndef f(): out.write('1')\nf()",
    "a file beside stdout": (
        "out = open(1, 'w', closefd=False)\nprint('a')\nprint('b', file=out)\ndef f(): pass"
    ),
    "its own module deleted": FILE
    + "import sys\nout.write('m')\ndel sys.modules['__main__']\ndef f(): pass",
    "its names cleared": "print(1)\nglobals().clear()",
    "a thread that starts another at the end": (
        "import threading, time\n"
        "def f(): time.sleep(0.02); threading.Thread(target=print, args=(2,)).start()\n"
        "threading.Thread(target=f).start()\nprint(1)"
    ),
    "a thread beneath threading": (
        "import _thread, time\n_thread.start_new_thread(time.sleep, (9,))\nprint(1)"
    ),
    "an exception while a thread runs": (
        "import threading, time\n"
        "threading.Thread(target=lambda: (time.sleep(0.02), print(2))).start()\n1 / 0"
    ),
    "unittest": (
        "import unittest\nclass T(unittest.TestCase):\n    def test(s): pass\nunittest.main()"
    ),
}


@pytest.mark.parametrize(
    ("program", "may_notice"),
    [
        ("import io, os\nsys.stdout = io.StringIO()", True),
        ("class A:\n    def __del__(self): pass", True),
        ("def f():\n    yield 1", True),
        ("out = os.fdopen(1, 'w')", True),
        ("import sys\ndef action(n): return n\nprint(action(int(sys.stdin.readline())))", False),
    ],
)
def test_which_programs_may_notice_the_end_of_their_objects(program, may_notice):
    assert bool(NOTICING.search(program)) is may_notice


@pytest.fixture(scope="module")
def sandbox():
    with EmbeddedSandbox(workers=1, form=strongest_form(False)) as sandbox:
        yield sandbox


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_program_ends_as_under_plain_python(name, sandbox, tmp_path):
    program = PROGRAMS[name]
    (tmp_path / "main.py").write_text(program)
    plain = subprocess.run(
        [sys.executable, "-P", "-B", "-W", "ignore", "main.py"],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        cwd=tmp_path,
        env={"LC_ALL": "C.UTF-8"},
        timeout=600,
    )
    [(_, [ours])] = sandbox.run([Job(program, ("",), Limits(5.0, 20.0))], lambda *_: True)
    assert (ours.exit_code, ours.stdout) == (plain.returncode, plain.stdout), ours.stderr


FAULTS = """
import os, resource
from envs.sandbox.inside.interpreter import fill_lookup_cache

class Kind:
    def __getattr__(self, name):
        return None

names = {}
exec("def use(thing):\\n" + "".join(f"    thing.name_{n}\\n" for n in range(300)), names)
if __AHEAD__:
    fill_lookup_cache([names["use"]], [Kind])
thing, pipe = Kind(), os.pipe()
if os.fork() == 0:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    names["use"](thing)
    after = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    os.write(pipe[1], str(after - before).encode())
    os._exit(0)
os.wait()
print(os.read(pipe[0], 100).decode())
"""


def test_lookups_made_ahead_cost_a_fork_no_pages():
    ahead, later = (
        int(subprocess.check_output([sys.executable, "-c", FAULTS.replace("__AHEAD__", word)]))
        for word in ("True", "False")
    )
    assert ahead < later - 15  # the table of lookups has about 24 pages
