"""Honest programs that depend on how a script starts, reads, writes and ends."""

from tests.envs.honest.base import Honest

_TEMPLATE = """
import os, sys
from io import BytesIO, IOBase
BUFSIZE = 8192
class FastIO(IOBase):
    newlines = 0
    def __init__(self, file):
        self._fd = file.fileno()
        self.buffer = BytesIO()
        self.writable = "x" in file.mode or "r" not in file.mode
        self.write = self.buffer.write if self.writable else None
    def read(self):
        while True:
            b = os.read(self._fd, max(os.fstat(self._fd).st_size, BUFSIZE))
            if not b:
                break
            ptr = self.buffer.tell()
            self.buffer.seek(0, 2), self.buffer.write(b), self.buffer.seek(ptr)
        self.newlines = 0
        return self.buffer.read()
    def readline(self):
        while self.newlines == 0:
            b = os.read(self._fd, max(os.fstat(self._fd).st_size, BUFSIZE))
            self.newlines = b.count(b"\\n") + (not b)
            ptr = self.buffer.tell()
            self.buffer.seek(0, 2), self.buffer.write(b), self.buffer.seek(ptr)
        self.newlines -= 1
        return self.buffer.readline()
    def flush(self):
        if self.writable:
            os.write(self._fd, self.buffer.getvalue())
            self.buffer.truncate(0), self.buffer.seek(0)
class IOWrapper(IOBase):
    def __init__(self, file):
        self.buffer = FastIO(file)
        self.flush = self.buffer.flush
        self.writable = self.buffer.writable
        self.write = lambda s: self.buffer.write(s.encode("ascii"))
        self.read = lambda: self.buffer.read().decode("ascii")
        self.readline = lambda: self.buffer.readline().decode("ascii")
sys.stdin, sys.stdout = IOWrapper(sys.stdin), IOWrapper(sys.stdout)
input = lambda: sys.stdin.readline().rstrip("\\r\\n")
print(int(input()) + int(input()))
"""

ENDING = {
    "__stdout__ in an exit function": Honest(
        "import atexit, io, sys\n"
        "buffer = io.BytesIO()\n"
        "sys.stdout.write = lambda s: buffer.write(s.encode())\n"
        "atexit.register(lambda: sys.__stdout__.buffer.write(buffer.getvalue()))\n"
        "print(1)",
        "1\n",
    ),
    "__stdout__ in an exit function, stdout replaced": Honest(
        "import atexit, io, sys\n"
        "sys.stdout = out = io.StringIO()\n"
        "@atexit.register\n"
        "def write(): sys.__stdout__.write(out.getvalue())\n"
        "print(1)",
        "1\n",
    ),
    "open(1) never closed": Honest("out = open(1, 'w')\nout.write('1\\n')", "1\n"),
    "open(1) held by a function": Honest(
        "out = open(1, 'w')\ndef put(x): out.write(f'{x}\\n')\nput(1)", "1\n"
    ),
    "fdopen with a large buffer": Honest(
        "import os\nout = os.fdopen(1, 'wb', 1 << 20)\nfor i in range(3): out.write(b'%d\\n' % i)",
        "0\n1\n2\n",
    ),
    "writer over writer over descriptor": Honest(
        "import io\n"
        "class Out:\n"
        "    def __init__(self):\n"
        "        self.raw = io.BufferedWriter(io.FileIO(1, 'w'))\n"
        "        self.text = io.TextIOWrapper(self.raw)\n"
        "Out().text.write('1\\n')",
        "1\n",
    ),
    "stdout replaced, written through its old object": Honest(
        "import io, sys\nold = sys.stdout\nsys.stdout = io.StringIO()\n"
        "print('x')\nold.write('1\\n')",
        "1\n",
    ),
    "stdout replaced by a second file": Honest(
        "import sys\nsys.stdout = open(1, 'w', buffering=1 << 16)\nprint(1)", "1\n"
    ),
    "stdout with write and flush only": Honest(
        "import sys\n"
        "class Out:\n"
        "    def __init__(self): self.parts = []\n"
        "    def write(self, text): self.parts.append(text)\n"
        "    def flush(self): sys.__stdout__.write(''.join(self.parts)); self.parts.clear()\n"
        "sys.stdout = Out()\nprint(1)",
        "1\n",
    ),
    "stdout detached": Honest(
        "import io, sys\nsys.stdout = io.TextIOWrapper(sys.stdout.detach(), 'utf-8')\nprint('é')",
        "é\n",
    ),
    "stdout through codecs": Honest(
        "import codecs, sys\nsys.stdout = codecs.getwriter('utf-8')(sys.stdout.buffer)\nprint('é')",
        "é\n",
    ),
    "stdout closed at the end": Honest("import sys\nprint(1)\nsys.stdout.close()", "1\n"),
    "stdout taken away at the end": Honest("import sys\nprint(1)\nsys.stdout = None", "1\n"),
    "the contest template for fast streams": Honest(_TEMPLATE, "3\n", "1\n2\n"),
    "__del__ of a global": Honest(
        "class Out:\n    def __del__(self): print(1)\nout = Out()", "1\n"
    ),
    "__del__ in a cycle": Honest(
        "class Out:\n"
        "    def __init__(self): self.me = self\n"
        "    def __del__(self): print(1)\n"
        "Out()",
        "1\n",
    ),
    "__del__ that uses globals": Honest(
        "import math\n"
        "seen = []\n"
        "class Out:\n    def __del__(self): seen.append(1); print(len(seen), math.floor(2.5))\n"
        "out = Out()",
        "1 2\n",
    ),
    "a generator alive at the end": Honest(
        "def f():\n"
        "    try:\n        yield 1\n"
        "    finally:\n        print('end')\n"
        "g = f()\nprint(next(g))",
        "1\nend\n",
    ),
    "weakref.finalize": Honest(
        "import weakref\nclass A: pass\na = A()\nweakref.finalize(a, print, 'end')\nprint(1)",
        "1\nend\n",
    ),
    "a file that a module holds": Honest(
        "import math\nmath.out = open(1, 'w')\nmath.out.write('1\\n')", "1\n"
    ),
    "a file that builtins hold": Honest(
        "import builtins, functools\n"
        "builtins.print = functools.partial(print, file=open(1, 'w'))\nprint(1)",
        "1\n",
    ),
    "a file that a signal handler holds": Honest(
        "import signal\n"
        "out = open(1, 'w')\n"
        "def handler(*_): out.write('late')\n"
        "signal.signal(signal.SIGALRM, handler)\nout.write('1\\n')",
        "1\n",
    ),
    "a file that a hook holds": Honest(
        "import sys\nout = open(1, 'w')\n"
        "def hook(*_): out.write('wrong')\n"
        "sys.excepthook = hook\nout.write('1\\n')",
        "1\n",
    ),
    "a file beside annotated classes": Honest(
        "from typing import List, Optional\n"
        "out = open(1, 'w')\n"
        "class Node:\n    next: Optional['Node'] = None\n"
        "def f(nodes: List[Node]): out.write('1\\n')\n"
        "f([])",
        "1\n",
    ),
    "a file in a frame that exits": Honest(
        "import sys\n"
        "def main():\n    out = open(1, 'w')\n    out.write('1\\n')\n    sys.exit(0)\n"
        "main()",
        "1\n",
    ),
    "C's own stdout": Honest("import ctypes\nctypes.CDLL(None).printf(b'%d\\n', 7)", "7\n"),
    "exit functions in reverse": Honest(
        "import atexit\natexit.register(print, 2)\natexit.register(print, 1)\nprint(0)", "0\n1\n2\n"
    ),
    "an exit function that fails": Honest(
        "import atexit\natexit.register(lambda: 1 / 0)\nprint(1)", "1\n"
    ),
    "an exit function that exits": Honest(
        "import atexit, sys\natexit.register(sys.exit, 3)\nprint(1)", "1\n"
    ),
    "a hook that exits": Honest(
        "import sys\nsys.excepthook = lambda *_: sys.exit(0)\nprint(1)\n1 / 0", "1\n"
    ),
    "a daemon thread at work": Honest(
        "import threading\n"
        "def work():\n    while True: sum(range(100))\n"
        "threading.Thread(target=work, daemon=True).start()\nprint(1)",
        "1\n",
    ),
    "a thread that prints last": Honest(
        "import threading, time\n"
        "def work(): time.sleep(0.05); print(2)\n"
        "threading.Thread(target=work).start()\nprint(1)",
        "1\n2\n",
    ),
    "exit in a thread": Honest(
        "import sys, threading\n"
        "t = threading.Thread(target=sys.exit, args=(3,))\nt.start()\nt.join()\nprint(1)",
        "1\n",
    ),
    "sys.exit(0)": Honest("import sys\nprint(1)\nsys.exit(0)", "1\n"),
    "sys.exit(False)": Honest("import sys\nprint(1)\nsys.exit(False)", "1\n"),
    "os._exit after a flush": Honest("import os\nprint(1, flush=True)\nos._exit(0)", "1\n"),
    "garbage collection off": Honest(
        "import gc\ngc.disable()\nout = open(1, 'w')\nout.write('1\\n')",
        "1\n",
    ),
}

STREAMS = {
    "stdin.buffer": Honest(
        "import sys\nprint(sum(map(int, sys.stdin.buffer.read().split())))", "6\n", "1 2\n3"
    ),
    "input after readlines": Honest(
        "import sys\n"
        "print(len(sys.stdin.readlines()))\n"
        "try:\n    input()\nexcept EOFError:\n    print('end')",
        "2\nend\n",
        "1\n2\n",
    ),
    "input until the end": Honest(
        "n = 0\n"
        "while True:\n"
        "    try:\n        n += int(input())\n"
        "    except EOFError:\n        break\n"
        "print(n)",
        "6\n",
        "1\n2\n3",
    ),
    "/dev/stdin and /dev/stdout": Honest(
        "print(int(open('/dev/stdin').read()) + 1, file=open('/dev/stdout', 'w'))", "2\n", "1\n"
    ),
    "/dev/stderr and /dev/null": Honest(
        "import os\n"
        "for path in ('/dev/stderr', os.devnull):\n"
        "    with open(path, 'w') as file: print('x', file=file)\n"
        "print(1)",
        "1\n",
    ),
    "a prompt": Honest("print(input('n? '))", "n? 1\n", "1\n"),
    "fileinput": Honest(
        "import fileinput\nprint(sum(int(x) for x in fileinput.input()))", "3\n", "1\n2\n"
    ),
    "stdin replaced": Honest(
        "import io, sys\nsys.stdin = io.StringIO(open(0).read())\nprint(input(), input())",
        "1 2\n",
        "1\n2\n",
    ),
    "a carriage return in a line": Honest(
        "import sys\nprint(ascii(input()), ascii(sys.stdin.read()))",
        "'a\\rb' 'c\\r\\nd'\n",
        "a\rb\nc\r\nd",
    ),
    "carriage returns printed": Honest("print('a\\rb\\r\\nc', end='\\r')", "a\rb\r\nc\r"),
    "other line separators": Honest(
        "import sys\nprint([ascii(x) for x in sys.stdin])",
        "[\"'a\\\\x0bb\\\\x85c\\\\u2028d\\\\n'\", \"'e'\"]\n",
        "a\x0bb\x85c\u2028d\ne",
    ),
    "unicode": Honest("print(input()[::-1], '😀', len('😀'))", "üöä 😀 1\n", "äöü\n"),
    "5 MB on stderr": Honest(
        "import sys\nfor i in range(50000): print('x' * 99, file=sys.stderr)\nprint(1)", "1\n"
    ),
    "5 MB on stderr at once": Honest(
        "import os, sys\nsys.stderr.write('x' * 5_000_000)\nos.write(2, b'y')\nprint(1)", "1\n"
    ),
    "logging and warnings": Honest(
        "import logging, warnings\nlogging.basicConfig(level=logging.DEBUG)\n"
        "logging.debug('x')\nwarnings.warn('y')\nprint(1)",
        "1\n",
    ),
    "a traceback that was caught": Honest(
        "import traceback\ntry:\n    1 / 0\nexcept ZeroDivisionError:\n    traceback.print_exc()\n"
        "print(1)",
        "1\n",
    ),
    "redirect_stdout": Honest(
        "import contextlib, io\n"
        "with contextlib.redirect_stdout(io.StringIO()) as out: print(1)\n"
        "print(out.getvalue() * 2, end='')",
        "1\n1\n",
    ),
    "names and encodings of the streams": Honest(
        "import sys\n"
        "for s in (sys.stdin, sys.stdout, sys.stderr):\n"
        "    print(s.name, s.fileno(), s.mode, s.encoding, s.isatty(), s.closed)",
        "<stdin> 0 r utf-8 False False\n<stdout> 1 w utf-8 False False\n"
        "<stderr> 2 w utf-8 False False\n",
    ),
    "stdout reconfigured": Honest(
        "import sys\nsys.stdout.reconfigure(newline='\\r\\n', line_buffering=True)\nprint(1)",
        "1\r\n",
    ),
}

SOURCES = {
    "coding: cp1251": Honest("# -*- coding: cp1251 -*-\nprint(len('да'), 'да')", "2 да\n"),
    "coding: shift_jis": Honest("# coding: shift_jis\nprint(len('表示'), '表示')", "2 表示\n"),
    "coding: latin-1": Honest("#!/usr/bin/python3\n# coding=latin-1\nprint('é')", "é\n"),
    "a byte order mark": Honest("\ufeffprint('é')", "é\n"),
    "lines that end in \\r\\n": Honest("x = '''a\r\nb'''\r\nprint(len(x))\r\n", "3\n"),
    "from __future__": Honest(
        "'''doc'''\nfrom __future__ import annotations\n"
        "def f(x: Missing) -> None: pass\nprint(f.__annotations__['x'], __doc__)",
        "Missing doc\n",
    ),
    "the main guard": Honest(
        "def main(): print(__name__)\nif __name__ == '__main__': main()", "__main__\n"
    ),
    "names of a script": Honest(
        "import sys\nprint(__file__[-7:], __package__, __spec__, __annotations__, len(sys.argv))",
        "main.py None None {} 1\n",
    ),
    "import __main__": Honest(
        "import __main__, sys\nx = 1\nprint(__main__.x, sys.modules[__name__] is __main__)",
        "1 True\n",
    ),
    "inspect.getsource": Honest(
        "import inspect\ndef f():\n    return 1\nprint(inspect.getsource(f), end='')",
        "def f():\n    return 1\n",
    ),
    "eval and exec": Honest(
        "x = 1\nexec('y = x + 1')\nprint(eval('x + y'))\nexec(compile('print(y)', 'a', 'exec'))",
        "3\n2\n",
    ),
    "names of the site module": Honest(
        "print(all(callable(f) for f in (exit, quit, copyright, credits, license, help)))", "True\n"
    ),
    "quit": Honest("print(1)\nquit()", "1\n"),
    "doctest": Honest(
        "import doctest\n"
        "def f(x):\n"
        "    '''\n    >>> f(1)\n    2\n    '''\n"
        "    return x + 1\n"
        "print(doctest.testmod())",
        "TestResults(failed=0, attempted=1)\n",
    ),
    "argparse": Honest(
        "import argparse\np = argparse.ArgumentParser()\np.add_argument('--n', default=3)\n"
        "print(p.parse_args().n)",
        "3\n",
    ),
    "ONLINE_JUDGE": Honest(
        "import os, sys\n"
        "if 'ONLINE_JUDGE' not in os.environ: sys.stdin = open('input.txt')\n"
        "print(input(), bool(os.getenv('ONLINE_JUDGE')))",
        "1 True\n",
        "1\n",
    ),
}
