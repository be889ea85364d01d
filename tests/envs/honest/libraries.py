"""Honest programs that depend on libraries and the platform, or are called as functions."""

from tests.envs.honest.base import Honest

LIBRARY = {
    "asyncio": Honest(
        "import asyncio\n"
        "async def double(x):\n    await asyncio.sleep(0.01)\n    return 2 * x\n"
        "async def main(): print(await asyncio.gather(*map(double, range(3))))\n"
        "asyncio.run(main())",
        "[0, 2, 4]\n",
    ),
    "asyncio with threads": Honest(
        "import asyncio, time\n"
        "async def main(): print(await asyncio.to_thread(lambda: time.sleep(0.01) or 1))\n"
        "asyncio.run(main())",
        "1\n",
    ),
    "a pair of sockets": Honest(
        "import select, socket\n"
        "a, b = socket.socketpair()\na.send(b'hi')\n"
        "poll = select.epoll()\npoll.register(b, select.EPOLLIN)\n"
        "print(len(poll.poll(1)), b.recv(9))",
        "1 b'hi'\n",
    ),
    "a pool of threads": Honest(
        "from concurrent.futures import ThreadPoolExecutor\n"
        "with ThreadPoolExecutor() as pool: print(list(pool.map(abs, range(-3, 0))))",
        "[3, 2, 1]\n",
    ),
    "a pool that is never shut down": Honest(
        "from concurrent.futures import ThreadPoolExecutor\nThreadPoolExecutor(2).submit(print, 1)",
        "1\n",
    ),
    "a thread with a stack of 1 GB": Honest(
        "import sys, threading\nsys.setrecursionlimit(10**6)\nthreading.stack_size(10**9)\n"
        "def f(n): return n and 1 + f(n - 1)\n"
        "t = threading.Thread(target=lambda: print(f(50000)))\nt.start()\nt.join()",
        "50000\n",
    ),
    "the size of threads' stacks": Honest(
        "import threading\n"
        "print(threading.stack_size(1 << 26), threading.stack_size(), threading.stack_size())\n"
        "try:\n    threading.stack_size(1)\nexcept ValueError:\n    print('too small')",
        "0 67108864 0\ntoo small\n",
    ),
    "a raised stack limit": Honest(
        "import resource\n"
        "resource.setrlimit(resource.RLIMIT_STACK, (1 << 28, resource.RLIM_INFINITY))\nprint(1)",
        "1\n",
    ),
    "deep recursion": Honest(
        "import sys\nsys.setrecursionlimit(10**6)\n"
        "def f(n): return n and 1 + f(n - 1)\nprint(f(100000))",
        "100000\n",
    ),
    "recursion right below the limit": Honest(
        "def f(n): return n and 1 + f(n - 1)\nprint(f(998))\n"
        "try: f(999)\nexcept RecursionError: print('too deep')",
        "998\ntoo deep\n",
    ),
    "recursion right below a limit of its own": Honest(
        "import sys\nsys.setrecursionlimit(1500)\n"
        "def f(n): return n and 1 + f(n - 1)\nprint(f(1498), sys.getrecursionlimit())\n"
        "try: f(1499)\nexcept RecursionError: print('too deep')\n"
        "sys.setrecursionlimit(2**31 - 1)\nprint(sys.getrecursionlimit())\n"
        "for wrong in 0, -1, 2**31, 1.5, 1:\n"
        "    try: sys.setrecursionlimit(wrong)\n"
        "    except Exception as error: print(type(error).__name__)",
        "1498 1500\ntoo deep\n2147483647\n"
        "ValueError\nValueError\nOverflowError\nTypeError\nRecursionError\n",
    ),
    "a recursive lock of C, held elsewhere": Honest(
        "import ctypes, threading\n"
        "libc, kind, lock = ctypes.CDLL(None), *map(ctypes.create_string_buffer, (64, 128))\n"
        "libc.pthread_mutexattr_settype(kind, 1)\nlibc.pthread_mutex_init(lock, kind)\n"
        "libc.pthread_mutex_lock(lock)\n"
        "taken = lambda: print(libc.pthread_mutex_trylock(lock) == 0)\n"
        "thread = threading.Thread(target=taken)\nthread.start()\nthread.join()\ntaken()",
        "False\nTrue\n",
    ),
    "long integers": Honest(
        "import sys\nsys.set_int_max_str_digits(0)\n"
        "print(len(str(7**20000)), int('9' * 9999) % 97)",
        "16902 44\n",
    ),
    "an alarm": Honest(
        "import signal\n"
        "class Late(Exception): pass\n"
        "def handler(*_): raise Late\n"
        "signal.signal(signal.SIGALRM, handler)\n"
        "try:\n    signal.setitimer(signal.ITIMER_REAL, 0.02)\n    while True: sum(range(100))\n"
        "except Late:\n    print('late')\nsignal.alarm(9)",
        "late\n",
    ),
    "locale": Honest(
        "import locale\nlocale.setlocale(locale.LC_ALL, '')\n"
        "print(locale.format_string('%d', 1234, grouping=True), locale.strcoll('a', 'b') < 0)",
        "1234 True\n",
    ),
    "multiprocessing, not used": Honest(
        "import multiprocessing\nfrom multiprocessing import Pool, Process\nprint(1)", "1\n"
    ),
    "faulthandler": Honest("import faulthandler\nfaulthandler.enable()\nprint(1)", "1\n"),
    "tracemalloc": Honest(
        "import tracemalloc\ntracemalloc.start()\nx = [0] * 9999\n"
        "print(tracemalloc.get_traced_memory()[0] > 79992)",
        "True\n",
    ),
    "a short sleep": Honest("import time\ntime.sleep(0.01)\nprint(time.time() > 1e9)", "True\n"),
    "pickle of one's own class": Honest(
        "import copy, pickle\n"
        "class A:\n    x = 1\n"
        "print(pickle.loads(pickle.dumps(A())).x, copy.deepcopy(A()).x)",
        "1 1\n",
    ),
    "dataclasses, enums, type hints": Honest(
        "import enum, typing\nfrom dataclasses import dataclass, field\n"
        "@dataclass(order=True)\nclass A:\n    x: int\n    y: 'A' = field(default=None)\n"
        "class E(enum.Enum):\n    B = enum.auto()\n"
        "print(A(1) < A(2), E.B.value, typing.get_type_hints(A)['y'] is A)",
        "True 1 True\n",
    ),
    "sqlite in memory": Honest(
        "import sqlite3\nc = sqlite3.connect(':memory:')\n"
        "print(c.execute('select 1 + 1').fetchone())",
        "(2,)\n",
    ),
    "decimal, fractions, statistics": Honest(
        "from decimal import *\nfrom fractions import Fraction\nimport statistics\n"
        "getcontext().prec = 30\nprint(Decimal(1) / 7, Fraction(6, 4), statistics.mean([1, 2]))",
        "0.142857142857142857142857142857 3/2 1.5\n",
    ),
    "hashlib, zlib, base64, struct": Honest(
        "import base64, hashlib, struct, zlib\n"
        "print(hashlib.md5(b'').hexdigest()[:4], len(zlib.compress(bytes(999))) < 99,\n"
        "      base64.b64encode(b'hi').decode(), struct.unpack('<H', b'\\1\\2')[0])",
        "d41d True aGk= 513\n",
    ),
}

PLATFORM = {
    "packages that are not offered": Honest(
        "try: from sortedcontainers import SortedList\nexcept ImportError: SortedList = sorted\n"
        "try: import pip, pytest, _pytest\nexcept ImportError: pass\n"
        "print(*SortedList([3, 1, 2]))",
        "1 2 3\n",
    ),
    "/dev/stdin through pathlib": Honest(
        "import pathlib\nprint(pathlib.Path('/dev/stdin').read_text().split())",
        "['1', '2']\n",
        "1\n2\n",
    ),
    "/dev/fd/0 through os.open": Honest(
        "import os\nprint(os.read(os.open('/dev/fd/0', os.O_RDONLY), 100))", "b'1\\n'\n", "1\n"
    ),
    "/dev/null in every mode": Honest(
        "import os, sys\nfor mode in 'w', 'a', 'r+', 'wb': open('/dev/null', mode).close()\n"
        "os.write(os.open('/dev/null', os.O_RDWR), b'x')\n"
        "print('lost', file=open(os.devnull, 'w'))\nprint(len(open('/dev/null').read()))",
        "0\n",
    ),
    "random bytes": Honest(
        "import os, secrets\nprint(len(open('/dev/urandom', 'rb').read(8)), len(os.urandom(8)))\n"
        "print(secrets.randbelow(1), open('/dev/zero', 'rb').read(2))",
        "8 8\n0 b'\\x00\\x00'\n",
    ),
    "umask, folder and user": Honest(
        "import os\nprint(oct(os.umask(0)), os.getpid() > 0, os.cpu_count() > 0, os.getenv('X'))",
        "0o22 True True None\n",
    ),
    "a raised stack limit and a deep recursion": Honest(
        "import resource, sys\nhard = resource.getrlimit(resource.RLIMIT_STACK)[1]\n"
        "for soft in hard, 1 << 29, resource.RLIM_INFINITY:\n"
        "    resource.setrlimit(resource.RLIMIT_STACK, (soft, hard))\n"
        "sys.setrecursionlimit(10**6)\ndef f(n): return n and 1 + f(n - 1)\nprint(f(30000))",
        "30000\n",
    ),
}

NUMPY = {
    "sorting beside numpy": Honest(
        "import numpy as np\na = np.array(input().split(), dtype=np.int64)\n"
        "print(*np.sort(a), a.sum(), np.linalg.norm(a.astype(float)), np.__version__ > '2')",
        "1 2 3 6 3.7416573867739413 True\n",
        "3 1 2\n",
    ),
    "numpy": Honest(
        "import numpy as np\na = np.array(input().split(), np.int64)\nprint(a.cumsum(), a.max())",
        "[1 3 6] 3\n",
        "1 2 3\n",
    ),
    "numpy from stdin to stdout": Honest(
        "import sys\nimport numpy as np\n"
        "np.savetxt(sys.stdout, np.loadtxt(sys.stdin, dtype=int) * 2, fmt='%d')",
        "2 4\n6 8\n",
        "1 2\n3 4\n",
    ),
    "numpy and an open file": Honest(
        "import numpy as np\nout = open(1, 'w')\ndef f(): print(np.arange(3).sum(), file=out)\nf()",
        "3\n",
    ),
    "numpy's scalars returned": Honest(
        "import numpy as np\n"
        "def f(a): return [np.sum(a), np.mean(a), np.bool_(True), np.float32(.5)]",
        "[6, 2.0, true, 0.5]",
        "[[1, 2, 3]]",
        "f",
    ),
    "a numpy array returned as a list": Honest(
        "import numpy as np\ndef f(a): return np.array(a).T.tolist()",
        "[[1, 3], [2, 4]]",
        "[[[1, 2], [3, 4]]]",
        "f",
    ),
    "numpy's numbers as keys": Honest(
        "import numpy as np\n"
        "def f(a): return {k: c for k, c in zip(*np.unique(a, return_counts=True))}",
        '{"1": 2, "3": 1}',
        "[[1, 3, 1]]",
        "f",
    ),
}

CALLS = {
    "a main guard that reads": Honest(
        "def f(a): return a + 1\nif __name__ == '__main__': print(f(int(input())))", "3", "[2]", "f"
    ),
    "a main guard that exits": Honest(
        "import sys\ndef f(a): return a + 1\nif __name__ == '__main__': sys.exit(f(0))",
        "3",
        "[2]",
        "f",
    ),
    "a main guard of unittest": Honest(
        "import unittest\ndef f(a): return a + 1\n"
        "class Test(unittest.TestCase):\n    def test(self): self.assertEqual(f(1), 2)\n"
        "if __name__ == '__main__': unittest.main()",
        "3",
        "[2]",
        "f",
    ),
    "stdin tried in vain": Honest(
        "try:\n    n = int(input())\nexcept EOFError:\n    n = 1\ndef f(a): return a + n",
        "3",
        "[2]",
        "f",
    ),
    "what is printed is no result": Honest(
        "print('hello')\ndef f(a):\n    print(a)\n    return a", "2", "[2]", "f"
    ),
    "its own module": Honest(
        "import pickle, sys\nfrom dataclasses import dataclass\n"
        "@dataclass\nclass P:\n    x: 'int'\n"
        "def f(a): return [pickle.loads(pickle.dumps(P(a))).x, sys.modules[__name__].f is f]",
        "[2, true]",
        "[2]",
        "f",
    ),
    "a method of Solution": Honest(
        "class Solution:\n    def f(self, a): return a[::-1]", "[2, 1]", "[[1, 2]]", "f"
    ),
    "Decimal": Honest(
        "from decimal import Decimal\ndef f(a): return [Decimal(a) / 4, Decimal(a)]",
        "[0.5, 2]",
        "[2]",
        "f",
    ),
    "Fraction": Honest(
        "from fractions import Fraction\ndef f(a): return [Fraction(a, 4), Fraction(a)]",
        "[0.5, 2]",
        "[2]",
        "f",
    ),
    "a tuple": Honest("def f(a): return a[0], tuple(a)", "[1, [1, 2]]", "[[1, 2]]", "f"),
    "a counter": Honest(
        "from collections import Counter\ndef f(s): return Counter(s)",
        '{"a": 2, "b": 1}',
        '["aba"]',
        "f",
    ),
    "exit functions after the call": Honest(
        "import atexit\natexit.register(print, 'bye')\ndef f(a): return a", "2", "[2]", "f"
    ),
}
