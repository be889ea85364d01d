"""What runs inside the cage: standard library only, and handed over as one text.

No image and no read-only view has to hold these files: `source` packs them into a program for
`python3 -c`, so that what runs inside is always what stands here.

Every page of the process that tests are forked from costs each of them. So that program compiles
the modules and becomes another, which has them from a pipe: the texts, and all that reading and
compiling them left in memory, are gone.
"""

from __future__ import annotations

import functools
from pathlib import Path

from envs.sandbox.inside.kernel import STACK_BYTES

# -X utf8 for streams, -W ignore since the compiler's warnings would go to nobody.
FLAGS = ("-s", "-S", "-P", "-B", "-W", "ignore", "-X", "utf8")

# In the order of their imports.
_MODULES = ("kernel", "framing", "calls", "stderr_tail", "startup_status", "zygote")
_MODULES += ("wait_with_limits", "interpreter_shutdown", "program_header", "child", "confine")
_MODULES += ("run_test", "runner", "interpreter", "server", "landlock", "main")

# Only a new process image can have a larger stack.
_COMPILER = """\
import marshal, os, resource, sys
stack, most = resource.RLIMIT_STACK, resource.getrlimit(resource.RLIMIT_STACK)[1]
wanted = {stack} if most == resource.RLIM_INFINITY else min({stack}, most)
resource.setrlimit(stack, (wanted, most))
source, sink = os.pipe()
writer = os.fork()
if writer == 0:
    os.close(source)
    codes = [(name, compile(text, f"<{{name}}>", "exec", optimize=2)) for name, text in {texts!r}]
    with open(sink, "wb") as file:
        marshal.dump(codes, file)
    os._exit(0)
os.close(sink)
os.set_inheritable(source, True)
loader = ["-c", {loader!r}, sys.argv[-1], str(source), str(writer)]
os.execv(sys.executable, [sys.executable, *{flags!r}, *loader])
"""

# The modules leave sys.modules again, since programs should find a plain interpreter.
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
    """The text of the fork server for `python3 FLAGS -c TEXT CONFIG`.

    CONFIG is a JSON object, see `main.py`.
    """
    folder = Path(__file__).parent
    texts = [(f"{__name__}.{name}", (folder / f"{name}.py").read_text()) for name in _MODULES]
    return _COMPILER.format(texts=texts, loader=_LOADER, flags=FLAGS, stack=STACK_BYTES)
