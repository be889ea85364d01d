"""Prepared data that is kept between runs: its folder, safe writes, and the code it depends on."""

from __future__ import annotations

import ast
import fcntl
import hashlib
import importlib.util
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

_INSTALLED = {"site-packages", "dist-packages"}


def cache_root() -> Path:
    """Return $SPO_BENCH_CACHE, else spo-bench in the user's cache folder. It may be deleted."""
    configured = os.environ.get("SPO_BENCH_CACHE")
    if configured:
        return Path(configured).expanduser()
    home = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(home).expanduser() / "spo-bench"


@contextmanager
def locked_folder(folder: Path, name: str = "lock") -> Iterator[None]:
    """Let one process at a time do the work `name` in `folder`. A dead process holds no lock."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / name).open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def replace_file(path: Path, text: str) -> None:
    """Write a file atomically, even if other processes write it too."""
    temporary = path.with_name(f"{path.name}.{os.getpid()}.tmp")
    temporary.write_text(text)
    temporary.replace(path)


def code_digest(*modules: str) -> str:
    """Return 16 hex digits over the source of modules and of all their imports, without importing.

    A YAML file beside a module, with its name, belongs to its source. The standard library and
    installed packages are not followed, except for the packages that `modules` themselves belong
    to.
    """
    packages = {module.partition(".")[0] for module in modules}
    sources: dict[str, bytes] = {}
    pending = list(modules)
    while pending:
        module = pending.pop()
        if module in sources or (file := _source_file(module, packages)) is None:
            continue
        sources[module], data = file.read_bytes(), file.with_suffix(".yaml")
        package = module if file.stem == "__init__" else module.rpartition(".")[0]
        for base, name in _imported_names(sources[module]):
            base = importlib.util.resolve_name(base, package) if base.startswith(".") else base
            imported = f"{base}.{name}" if base else name
            pending.append(imported if not base or _source_file(imported, packages) else base)
        if data.exists():
            sources[f"{module}.yaml"] = data.read_bytes()
    return hashlib.sha256(repr(sorted(sources.items())).encode()).hexdigest()[:16]


@cache
def _imported_names(source: bytes) -> list[tuple[str, str]]:
    """Return (a, b) for `from a import b` and ("", b) for `import b`; none under TYPE_CHECKING."""
    found: list[tuple[str, str]] = []
    pending: list[ast.AST] = [ast.parse(source)]
    while pending:
        node = pending.pop()
        if isinstance(node, ast.If) and ast.unparse(node.test).endswith("TYPE_CHECKING"):
            continue
        pending += ast.iter_child_nodes(node)
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            base = ""
            if isinstance(node, ast.ImportFrom):
                base = "." * node.level + (node.module or "")
            found += [(base, alias.name) for alias in node.names]
    return found


def _source_file(module: str, packages: set[str]) -> Path | None:
    """Return the file of a module that `code_digest` follows, else None."""
    top = module.partition(".")[0]
    if top in sys.stdlib_module_names:
        return None
    try:
        # the top-level package first: finding a submodule imports its parents
        spec = importlib.util.find_spec(top)
        installed = spec is None or not _INSTALLED.isdisjoint(Path(spec.origin or "").parts)
        followed = spec is not None and (top in packages or not installed)
        spec = importlib.util.find_spec(module) if followed and module != top else spec
    except (ImportError, ValueError):
        return None
    origin = spec.origin if followed and spec else None
    return Path(origin) if origin and origin.endswith(".py") else None
