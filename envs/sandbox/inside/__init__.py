"""The fork server that runs inside the sandbox, packed as one text.

Knows the frames to and from the host. Must not know anything outside the standard library: neither
an image nor a read-only root folder needs to hold these files.

Every page of the process that tests are forked from costs each test. So the modules are compiled
here, for the same version of Python, and the server reads them from its command line.
"""

from __future__ import annotations

import base64
import functools
import marshal
import zlib
from pathlib import Path

from envs.sandbox.inside.kernel import STACK_BYTES

# -X utf8 for the streams, -W ignore since nobody reads the compiler's warnings.
FLAGS = ("-s", "-S", "-P", "-B", "-W", "ignore", "-X", "utf8")

# In the order of their imports.
_MODULES = ("framing", "kernel", "confinement", "interpreter", "program", "server")

# Only a new process image can have a larger stack.
_STARTER = """\
import os, resource, sys
stack, hard_limit = resource.RLIMIT_STACK, resource.getrlimit(resource.RLIMIT_STACK)[1]
size = {stack} if hard_limit == resource.RLIM_INFINITY else min({stack}, hard_limit)
resource.setrlimit(stack, (size, hard_limit))
os.execv(sys.executable, [sys.executable, *{flags!r}, "-c", {loader!r}, sys.argv[-1]])
"""

# The modules leave sys.modules again, since programs should see a plain interpreter.
_LOADER = """\
import base64, marshal, sys, types, zlib
modules = marshal.loads(zlib.decompress(base64.b64decode({modules!r})))
for name, code in modules:
    sys.modules[name] = types.ModuleType(name)
    exec(code, sys.modules[name].__dict__)
main = sys.modules[name].main
for name in [*(name for name, _ in modules), "base64", "zlib"]:
    del sys.modules[name]
del modules, code, base64, zlib
main()
"""


@functools.cache
def source() -> str:
    """Return the text of the fork server for `python3 FLAGS -c TEXT CONFIG`.

    CONFIG is a JSON object; see `server.py`.
    """
    modules = []
    for name in _MODULES:
        text = (Path(__file__).parent / f"{name}.py").read_text()
        name = f"{__name__}.{name}"
        modules.append((name, compile(text, f"<{name}>", "exec", optimize=2)))
    packed = base64.b64encode(zlib.compress(marshal.dumps(modules), 9))
    loader = _LOADER.format(modules=packed)
    return _STARTER.format(loader=loader, flags=FLAGS, stack=STACK_BYTES)
