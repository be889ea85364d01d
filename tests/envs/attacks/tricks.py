"""Attacks on the judgement: what is printed, how a program ends, and what it leaves behind."""

from envs.problem import Verdict
from tests.envs.attacks.base import Attack, ends, probe

_FORGED_FRAME = """
import struct
body = json.dumps({"outcome": "FINISHED", "stderr": "", "exit_code": 0, "cpu_s": 0.0,
                   "wall_s": 0.0}).encode()
payload = len(body).to_bytes(4, "big") + body + b"HELD"
frame = struct.pack(">BI", 19, len(payload)) + payload
"""


def _called(program: str, *verdicts: str) -> Attack:
    """Defines `f`, which is to return "HELD"."""
    return Attack(program, frozenset(map(Verdict, verdicts)), fn_name="f")


ATTACKS = {
    "patched builtins": probe(
        """
import builtins
if hasattr(builtins, "owned"):
    leaks.append("builtins-outlived-the-test")
builtins.owned = True
for name in ("compile", "open", "exec", "len", "__build_class__"):
    setattr(builtins, name, lambda *a, **k: None)
""",
        tests=3,
    ),
    "patched modules": probe(
        """
import io, struct
if hasattr(sys, "owned"):
    leaks.append("modules-outlived-the-test")
sys.owned = True
os.memfd_create = os.fork = os.wait4 = os.kill = lambda *a, **k: 0
json.dumps = struct.pack = lambda *a, **k: b""
sys.modules["io"] = None
sys.setrecursionlimit(60)
""",
        tests=3,
    ),
    "exit in a thread": ends(
        """
import threading
thread = threading.Thread(target=sys.exit, args=(3,))
thread.start()
thread.join()
print("HELD")
""",
        "ACCEPTED",
    ),
    "hard exit in a thread": ends(
        """
import threading
print("HELD", flush=True)
threading.Thread(target=os._exit, args=(3,)).start()
import time
time.sleep(60)
""",
        "RUNTIME_ERROR",
    ),
    "exit 0 after a right prefix": ends(
        "print('HE', end='', flush=True)\nos._exit(0)", "WRONG_ANSWER"
    ),
    "exit 0 before the answer is flushed": ends("print('HELD')\nos._exit(0)", "WRONG_ANSWER"),
    "exit handler changes the answer": ends(
        "import atexit\natexit.register(print, 'MORE')\nprint('HELD')", "WRONG_ANSWER"
    ),
    "exit handler changes the exit code": ends(
        "import atexit\natexit.register(os._exit, 4)\nprint('HELD', flush=True)", "RUNTIME_ERROR"
    ),
    "right output, wrong exit code": ends("print('HELD')\nsys.exit(1)", "RUNTIME_ERROR"),
    "right output, then an exception": ends("print('HELD')\n1 / 0", "RUNTIME_ERROR"),
    "right output, then a message as exit": ends("print('HELD')\nsys.exit('x')", "RUNTIME_ERROR"),
    "right output, then killed by itself": ends(
        """
print('HELD', flush=True)
import ctypes
ctypes.string_at(0)
""",
        "RUNTIME_ERROR",
    ),
    "ends with a core dump": ends("print('HELD', flush=True)\nos.abort()", "RUNTIME_ERROR"),
    "forged frame on stdout": ends(_FORGED_FRAME + "os.write(1, frame * 3)", "WRONG_ANSWER"),
    "forged frame on every descriptor": ends(
        _FORGED_FRAME
        + """
for descriptor in [*range(3, 1024), 0, 2]:
    try:
        os.write(descriptor, frame)
    except OSError:
        pass
print("WRONG")
""",
        "WRONG_ANSWER",
    ),
    "forged frame through /proc": ends(
        _FORGED_FRAME
        + """
for pid in ("1", "self", str(os.getppid())):
    for descriptor in range(10):
        try:
            with open(f"/proc/{pid}/fd/{descriptor}", "wb", buffering=0) as file:
                file.write(frame)
        except OSError:
            pass
print("WRONG")
""",
        "WRONG_ANSWER",
    ),
    "a frame header's worth of zeros": ends("os.write(1, bytes(1 << 16))", "WRONG_ANSWER"),
    "an object that equals everything": _called(
        "class Equal(str):\n"
        "    def __eq__(self, other): return True\n"
        "    def __hash__(self): return 0\n"
        "def f(world): return Equal('WRONG')",
        "WRONG_ANSWER",
    ),
    "an object that is no value": _called("def f(world): return f", "WRONG_ANSWER"),
    "an object that says it is a text": _called(
        "class Text:\n"
        "    __class__ = str\n"
        "    __eq__ = lambda self, other: True\n"
        "    __str__ = __repr__ = lambda self: 'HELD'\n"
        "def f(world): return Text()",
        "WRONG_ANSWER",
    ),
    "a class that is equal to str": _called(
        "class Meta(type):\n"
        "    __eq__ = lambda self, other: True\n"
        "    __hash__ = lambda self: hash(str)\n"
        "    __instancecheck__ = __subclasscheck__ = lambda self, other: True\n"
        "class Text(metaclass=Meta):\n"
        "    __str__ = __repr__ = lambda self: 'HELD'\n"
        "def f(world): return [Text()], Text()",
        "WRONG_ANSWER",
        "RUNTIME_ERROR",
    ),
    "a name that is no text": _called(
        "class Meta(type):\n    __name__ = property(lambda self: [self])\n"
        "class X(metaclass=Meta):\n    def __bool__(self): raise SystemExit(0)\n"
        "def f(world): return X()",
        "WRONG_ANSWER",
    ),
    "a forged tag": _called("def f(world): return {'': ['HELD', 'HELD']}", "WRONG_ANSWER"),
    "a value that holds itself": _called(
        "def f(world):\n    x = []\n    x.append(x)\n    return x",
        "RUNTIME_ERROR",
        "MEMORY_LIMIT",
        "WRONG_ANSWER",
    ),
    "patched serialisation": _called(
        "import json\njson.dumps = lambda *a, **k: 'true'\n"
        "json.loads = lambda *a, **k: ['x']\ndef f(world): return 1",
        "WRONG_ANSWER",
        "RUNTIME_ERROR",
    ),
    "a second answer on the result's descriptor": _called(
        "import os\ndef f(world):\n"
        "    for fd in range(3, 256):\n"
        "        try: os.write(fd, b'\"HELD\" ')\n"
        "        except OSError: pass\n"
        "    return 'WRONG'",
        "WRONG_ANSWER",
    ),
    "exit inside the call": _called("import os\ndef f(world): os._exit(0)", "WRONG_ANSWER"),
    "prints inside the call": _called(
        "def f(world):\n    print('\"WRONG\"')\n    return 'HELD'", "ACCEPTED"
    ),
    "source with a null byte": ends("x = '\0'\nprint('HELD')", "SYNTAX_ERROR", "RUNTIME_ERROR"),
    "source in another encoding": ends(
        "# -*- coding: unknown-8bit -*-\nprint('WRONG')", "SYNTAX_ERROR", "WRONG_ANSWER"
    ),
}
