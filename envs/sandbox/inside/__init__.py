"""What runs inside the cage: standard library only, and handed over as one text.

No image and no read-only view has to hold these files: `source` packs them into a program for
`python3 -c`, so that what runs inside is always what stands here.
"""

from __future__ import annotations

import functools
from pathlib import Path

# In the order of their imports.
_MODULES = ("kernel", "channel", "calls", "complaints", "stage", "zygote", "watch", "ending")
_MODULES += ("child", "confine", "trial", "runner", "interpreter", "server", "landlock", "main")

# The modules leave sys.modules again, since programs should find a plain interpreter.
_LOADER = """\
import sys, types
texts = {texts!r}
for name, text in texts.items():
    sys.modules[name] = types.ModuleType(name)
    exec(compile(text, "<" + name + ">", "exec"), sys.modules[name].__dict__)
main = sys.modules[{entry!r}].main
for name in texts:
    del sys.modules[name]
main()
"""

# -X utf8 for streams, -W ignore since the compiler's warnings would go to nobody.
FLAGS = ("-s", "-S", "-P", "-B", "-W", "ignore", "-X", "utf8")


@functools.cache
def source() -> str:
    """The text of the fork server for `python3 FLAGS -c TEXT CONFIG`.

    CONFIG is a JSON object, see `main.py`.
    """
    folder = Path(__file__).parent
    texts = {f"{__name__}.{name}": (folder / f"{name}.py").read_text() for name in _MODULES}
    return _LOADER.format(texts=texts, entry=f"{__name__}.main")
