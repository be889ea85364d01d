"""The fork server that runs inside the sandbox, packed as one text.

Knows the frames to and from the host. Must not know anything outside the standard library: neither
an image nor a read-only root folder needs to hold these files.

`source` packs the modules into a program for `python3 -c`, so the code that runs inside always
equals the code here. Every page of the process that tests are forked from costs each test.
Therefore that program compiles the modules in a child and replaces itself by a new interpreter,
which reads the compiled code from a pipe. The texts, and the memory that reading and compiling
them left behind, are gone then.
"""

from __future__ import annotations

import functools
from pathlib import Path

from envs.sandbox.inside.kernel import STACK_BYTES

__all__ = ["FLAGS", "source"]

# -X utf8 for the streams, -W ignore since nobody reads the compiler's warnings.
FLAGS = ("-s", "-S", "-P", "-B", "-W", "ignore", "-X", "utf8")

# In the order of their imports.
_MODULES = (
    "kernel",
    "framing",
    "confinement",
    "folder",
    "emulation",
    "interpreter",
    "values",
    "program",
    "test_process",
    "zygote",
    "wall_time",
    "run_test",
    "server",
    "main",
)

# Only a new process image can have a larger stack.
_COMPILER = """\
import marshal, os, resource, sys
stack, hard_limit = resource.RLIMIT_STACK, resource.getrlimit(resource.RLIMIT_STACK)[1]
size = {stack} if hard_limit == resource.RLIM_INFINITY else min({stack}, hard_limit)
resource.setrlimit(stack, (size, hard_limit))
source, sink = os.pipe()
compiler = os.fork()
if compiler == 0:
    os.close(source)
    codes = [(name, compile(text, f"<{{name}}>", "exec", optimize=2)) for name, text in {texts!r}]
    with open(sink, "wb") as file:
        marshal.dump(codes, file)
    os._exit(0)
os.close(sink)
os.set_inheritable(source, True)
loader = ["-c", {loader!r}, sys.argv[-1], str(source), str(compiler)]
os.execv(sys.executable, [sys.executable, *{flags!r}, *loader])
"""

# The modules leave sys.modules again, since programs should see a plain interpreter.
_LOADER = """\
import marshal, os, sys, types
with open(int(sys.argv[2]), "rb") as file:
    codes = marshal.load(file)
os.waitpid(int(sys.argv[3]), 0)
for name, code in codes:
    sys.modules[name] = types.ModuleType(name)
    exec(code, sys.modules[name].__dict__)
main = sys.modules[name].main
for name, _ in codes:
    del sys.modules[name]
del codes, code, file
main()
"""


@functools.cache
def source() -> str:
    """Return the text of the fork server for `python3 FLAGS -c TEXT CONFIG`.

    CONFIG is a JSON object; see `main.py`.
    """
    folder = Path(__file__).parent
    texts = [(f"{__name__}.{name}", (folder / f"{name}.py").read_text()) for name in _MODULES]
    return _COMPILER.format(texts=texts, loader=_LOADER, flags=FLAGS, stack=STACK_BYTES)
