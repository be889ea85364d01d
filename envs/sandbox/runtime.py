"""Which files a Python interpreter needs, so that a cage can show these and no others."""

from __future__ import annotations

import functools
import json
import os
import subprocess
import sys
from pathlib import Path

# numpy is what contest judges offer beyond the standard library.
PACKAGES_FOLDER = "/packages"  # where a cage with a root folder of its own shows it

# Run by the base interpreter: import every extension module, then list the libraries in memory.
_PROBE = """
import ctypes, importlib, json, os, sys
sys.path += sys.argv[1:]
skipped = ("_test", "_xx", "xx", "_tkinter", "_curses", "readline", "nis", "ossaudiodev")
folders = [path for path in sys.path if path.endswith("lib-dynload")]
names = [file.split(".")[0] for folder in folders for file in sorted(os.listdir(folder))]
for name in [*names, "numpy"]:
    if not name.startswith(skipped):
        try:
            importlib.import_module(name)
        except ImportError:
            pass

class Info(ctypes.Structure):
    _fields_ = [("address", ctypes.c_void_p), ("name", ctypes.c_char_p)]

found = []
kind = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.POINTER(Info), ctypes.c_size_t, ctypes.c_void_p)
visit = kind(lambda info, size, data: found.append(info.contents.name.decode()) or 0)
ctypes.CDLL(None).dl_iterate_phdr(visit, None)
standard = os.path.dirname(os.__file__)
numpy = sys.modules.get("numpy")
print(json.dumps({"libraries": found, "path": sys.path, "standard": standard,
                  "numpy": numpy and os.path.dirname(numpy.__file__)}))
"""


def base_python() -> str:
    """The interpreter below any virtual environment."""
    return getattr(sys, "_base_executable", None) or sys.executable


@functools.cache
def _probe() -> dict:
    """What the base interpreter says of itself, with all that it may load loaded."""
    command = [base_python(), "-s", "-S", "-P", "-B", "-c", _PROBE, *filter(None, sys.path)]
    output = subprocess.run(command, capture_output=True, check=True, timeout=60).stdout
    return json.loads(output)


def packages_folder() -> str:
    """The folder outside that holds numpy; "" where there is none."""
    numpy = _probe()["numpy"]
    return str(Path(numpy).parent) if numpy else ""


@functools.cache
def runtime_binds() -> tuple[tuple[str, str], ...]:
    """(path outside, path inside) of all that the base interpreter needs to run programs.

    The standard library and the shared libraries stand at the same path inside; numpy, where the
    running environment has it, in PACKAGES_FOLDER.
    """
    found = _probe()
    standard = found["standard"]
    shown = [standard, *(path for path in found["path"] if path.endswith("lib-dynload"))]
    binds = [(path, path) for path in _outermost(shown)]
    packages = []
    if found["numpy"]:
        folder = Path(found["numpy"])
        packages = [path for path in (folder, folder.parent / "numpy.libs") if path.is_dir()]
    binds += [(str(path), f"{PACKAGES_FOLDER}/{path.name}") for path in packages]
    covered = [source for source, _ in binds]
    for library in map(os.path.normpath, found["libraries"]):
        inside = any(Path(library).is_relative_to(path) for path in covered)
        if library.startswith("/") and not inside:
            binds.append((library, library))
    devices = ("/dev/null", "/dev/zero", "/dev/random", "/dev/urandom")
    return (*binds, *((path, path) for path in devices if Path(path).exists()))


def _outermost(paths: list[str]) -> list[str]:
    """The paths that lie below no other one of them."""
    unique = list(dict.fromkeys(paths))
    return [
        path
        for path in unique
        if not any(path != other and Path(path).is_relative_to(other) for other in unique)
    ]
