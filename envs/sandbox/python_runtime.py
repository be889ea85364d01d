"""The runtime of programs on every backend: this environment's Python and numpy.

The embedded sandbox shows the files listed here, and the Docker image consists of them: copied into
a tree, compiled, one layer. So a program finds the same interpreter, modules and environment in
either.
"""

from __future__ import annotations

import functools
import hashlib
import importlib.metadata
import json
import os
import platform
import re
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path
from typing import Any

from envs.sandbox.inside.confinement import FOLDER, STDIO, STREAM_LINKS

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
REPOSITORY = "spo-bench-sandbox"  # of the image
RECIPE = Path(__file__)
# The folder of the image that becomes a worker's root once it has started. The engine's additions
# to a container, /proc, /sys and /dev, stay outside.
CAGE = "/cage"
DEVICES = ("/dev/null", "/dev/zero", "/dev/random", "/dev/urandom")

# Run by the base interpreter: import every extension module, then list the libraries in memory.
_PROBE = """
import ctypes, importlib, json, os, sys
sys.path += sys.argv[1:]
skipped = ("_test", "_xx", "xx", "_tkinter", "_curses", "nis", "ossaudiodev")
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


# ---- the Docker image ----


def image_tag() -> str:
    """Return `repository:tag` of the image that fits this environment and checkout.

    It holds this environment's Python and numpy only; the worker's own program is passed on at
    start, so an image never goes stale with it. The tag names the versions, and hashes the
    interpreter's path, the links, and the code that builds the image.
    """
    digest = hashlib.sha256(f"{base_python()} {platform.machine()} {STREAM_LINKS}".encode())
    digest.update(RECIPE.read_bytes())
    return f"{REPOSITORY}:{re.sub(r'[^0-9a-z.]+', '-', versions())}-{digest.hexdigest()[:8]}"


def write_layer(scratch: Path) -> Path:
    """Write the image's only layer, an archive, into a folder; return its path."""
    root, archive = scratch / "root", scratch / "image.tar"
    cage = root / CAGE.lstrip("/")
    cage.mkdir(parents=True)
    copy_runtime(cage)
    # Programs cannot write compiled files. With unchecked hashes these stay valid whatever their
    # times are. Files that cannot be compiled, such as some tests of packages, stay as they are.
    folders = [cage / target.lstrip("/") for _, target in modules()]
    mode = ("--invalidation-mode", "unchecked-hash")
    command = [base_python(), "-S", "-W", "ignore", "-m", "compileall", "-qq", *mode]
    subprocess.run([*command, "-s", cage, "-p", "/", *folders])
    # The interpreter starts in the root, and needs the cage's folders at the same paths.
    for name in ("proc", "sys", "dev", "etc"):
        (root / name).mkdir()
    for entry in cage.iterdir():
        if not (root / entry.name).exists():
            (root / entry.name).symlink_to(f"{CAGE.lstrip('/')}/{entry.name}")
    with tarfile.open(archive, "w") as tar:
        tar.add(root, arcname=".", filter=_normalise)
    return archive


def copy_runtime(cage: Path) -> None:
    """Copy the runtime of programs into the cage, and make its mount points and links."""
    hidden = hidden_folders()

    def ignored(folder: str, names: list[str]) -> list[str]:
        return [name for name in names if name == "__pycache__" or f"{folder}/{name}" in hidden]

    for source, target in (*runtime_files(), (base_python(), base_python())):
        copy = cage / target.lstrip("/")
        copy.parent.mkdir(parents=True, exist_ok=True)
        if Path(source).is_dir():
            shutil.copytree(source, copy, symlinks=True, ignore=ignored, dirs_exist_ok=True)
        else:
            shutil.copyfile(source, copy)
            copy.chmod(0o755)
    for folder in (STDIO, FOLDER):
        (cage / folder.lstrip("/")).mkdir()
    for link, target in STREAM_LINKS.items():
        path = cage / link.lstrip("/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.symlink_to(target)


def _normalise(member: tarfile.TarInfo) -> tarfile.TarInfo:
    """Make an entry root's, readable for all and without times: equal trees give equal layers."""
    member.uid = member.gid = member.mtime = 0
    member.uname = member.gname = ""
    member.mode = 0o755 if member.isdir() or member.mode & 0o100 else 0o644
    return member
