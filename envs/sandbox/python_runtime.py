"""The runtime of programs on every backend: this environment's Python and numpy.

The embedded sandbox shows the files listed here, and the Docker image consists of them. So a
program finds the same interpreter, modules and environment in either.
"""

from __future__ import annotations

import functools
import importlib.metadata
import json
import os
import platform
import subprocess
import sys
from pathlib import Path
from typing import Any

PACKAGE = "numpy"  # the one that contest judges offer beyond the standard library
PACKAGES_FOLDER = "/packages"  # where a sandbox with its own root folder shows it
# Folders beside the standard library's modules that a sandbox with its own root does not show.
HIDDEN = ("site-packages", "dist-packages", "test", "idlelib", "ensurepip", "turtledemo")
# Environment variables of programs. A fixed hash seed makes the order of a set of strings, and so
# a verdict, repeatable. One arena and one BLAS thread keep the address space small, and the server
# free of threads.
ENVIRONMENT = {
    "PYTHONHASHSEED": "0",
    "LC_ALL": "C.UTF-8",
    "MALLOC_ARENA_MAX": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "ONLINE_JUDGE": "true",  # many programs then do not open their author's files
}
LOCALE = "/usr/lib/locale/C.utf8"  # of LC_ALL, where the C library has it in files
DEVICES = ("/dev/null", "/dev/zero", "/dev/random", "/dev/urandom")

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

libraries = []
kind = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.POINTER(Info), ctypes.c_size_t, ctypes.c_void_p)
visit = kind(lambda info, size, data: libraries.append(info.contents.name.decode()) or 0)
ctypes.CDLL(None).dl_iterate_phdr(visit, None)
standard = os.path.dirname(os.__file__)
numpy = sys.modules.get("numpy")
print(json.dumps({"libraries": libraries, "path": sys.path, "standard": standard,
                  "numpy": numpy and os.path.dirname(numpy.__file__)}))
"""


def versions() -> str:
    """Return the versions of Python and numpy, on which verdicts may depend."""
    return f"python {platform.python_version()}, numpy {importlib.metadata.version(PACKAGE)}"


def base_python() -> str:
    """Return the path of the interpreter below any virtual environment."""
    return os.path.realpath(getattr(sys, "_base_executable", None) or sys.executable)


@functools.cache
def _probe() -> dict[str, Any]:
    """Return the paths of the base interpreter, with every extension module loaded."""
    command = [base_python(), "-s", "-S", "-P", "-B", "-c", _PROBE, *filter(None, sys.path)]
    output = subprocess.run(command, capture_output=True, check=True, timeout=60).stdout
    return json.loads(output)


def packages_folder() -> str:
    """Return the folder outside that holds numpy; "" where there is none."""
    numpy = _probe()["numpy"]
    return str(Path(numpy).parent) if numpy else ""


def worker_environment() -> dict[str, str]:
    """Return the environment variables of a worker, which has no cache of library paths.

    Symbols are bound at its start. Otherwise every test process would bind those that it calls, and
    copy pages for that.
    """
    folders = dict.fromkeys(os.path.dirname(path) for path, _ in _libraries())
    return ENVIRONMENT | {"LD_BIND_NOW": "1", "LD_LIBRARY_PATH": ":".join(folders)}


@functools.cache
def modules() -> tuple[tuple[str, str], ...]:
    """Return (path outside, path inside) of the folders of the standard library and numpy.

    The standard library has the same path inside; numpy, if the environment has it, is in
    PACKAGES_FOLDER.
    """
    paths = _probe()
    dynamic = (path for path in paths["path"] if path.endswith("lib-dynload"))
    standard = dict.fromkeys([paths["standard"], *dynamic])
    folders = [
        (path, path)
        for path in standard
        if not any(path != other and Path(path).is_relative_to(other) for other in standard)
    ]
    if paths["numpy"]:
        numpy = Path(paths["numpy"])
        packages = [path for path in (numpy, numpy.parent / "numpy.libs") if path.is_dir()]
        folders += [(str(path), f"{PACKAGES_FOLDER}/{path.name}") for path in packages]
    return tuple(folders)


@functools.cache
def _libraries() -> tuple[tuple[str, str], ...]:
    """Return (path outside, equal path inside) of the shared libraries and their loader."""
    covered = [source for source, _ in modules()]
    paths = dict.fromkeys(map(os.path.normpath, _probe()["libraries"]))
    return tuple(
        (path, path)
        for path in paths
        if path.startswith("/") and not any(Path(path).is_relative_to(one) for one in covered)
    )


def runtime_files() -> tuple[tuple[str, str], ...]:
    """Return (path outside, path inside) of all files that running programs needs."""
    locale = ((LOCALE, LOCALE),) if Path(LOCALE).exists() else ()
    return modules() + _libraries() + locale


def hidden_folders() -> tuple[str, ...]:
    """Return the folders inside `runtime_files` that are not shown."""
    inside = [Path(outer, name) for outer, _ in modules() for name in HIDDEN]
    return tuple(str(path) for path in inside if path.is_dir())
