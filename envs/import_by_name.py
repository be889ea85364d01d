"""Import functions named in a configuration, and hash the source code they depend on."""

from __future__ import annotations

import ast
import hashlib
import importlib
import importlib.util
import sys
from collections.abc import Callable, Iterator
from difflib import get_close_matches
from functools import cache
from pathlib import Path

_INSTALLED = ("site-packages", "dist-packages")


def load_function(name: str, key: str) -> Callable:
    """Import the function `name` (package.module.function), the value of configuration key `key`.

    Raises ValueError in one line if the module cannot be imported or has no such function.
    """
    module_name, _, attribute = name.rpartition(".")
    if not module_name:
        raise ValueError(f"{key}={name}: write package.module.function")
    try:
        module = importlib.import_module(module_name)
    except Exception as error:  # a user's module may raise anything
        reason = f"{type(error).__name__}: {' '.join(str(error).split())}"
        raise ValueError(f"{key}={name}: {module_name} cannot be imported: {reason}") from error
    function = getattr(module, attribute, None)
    if not callable(function):
        names = [known for known, value in vars(module).items() if callable(value)]
        near = get_close_matches(attribute, names, n=1)
        hint = f"; did you mean {near[0]}?" if near else ""
        raise ValueError(f"{key}={name}: {module_name} has no function {attribute}{hint}")
    return function


def code_digest(*modules: str) -> str:
    """Return 16 hex digits over the source of modules and of all their imports, without importing.

    The standard library and installed packages are not followed, except for the packages that
    `modules` themselves belong to.
    """
    packages = {module.partition(".")[0] for module in modules}
    sources: dict[str, bytes] = {}
    pending = list(modules)
    while pending:
        module = pending.pop()
        if module in sources or (file := _source_file(module, packages)) is None:
            continue
        sources[module] = file.read_bytes()
        package = module if file.stem == "__init__" else module.rpartition(".")[0]
        pending += _imported_modules(sources[module], package, packages)
    return hashlib.sha256(repr(sorted(sources.items())).encode()).hexdigest()[:16]


def _imported_modules(source: bytes, package: str, packages: set[str]) -> Iterator[str]:
    """Yield the modules that a source imports, in functions too, but not under TYPE_CHECKING."""
    for relative, names in _import_statements(source):
        if relative is None:
            yield from names
            continue
        dots = relative.startswith(".")
        base = importlib.util.resolve_name(relative, package) if dots else relative
        for name in names:
            module = f"{base}.{name}"
            yield module if _source_file(module, packages) else base


@cache
def _import_statements(source: bytes) -> list[tuple[str | None, list[str]]]:
    """Return (a, [b]) for `from a import b` and (None, [b]) for `import b`."""
    statements: list[tuple[str | None, list[str]]] = []
    pending: list[ast.AST] = [ast.parse(source)]
    while pending:
        node = pending.pop()
        if isinstance(node, ast.If) and ast.unparse(node.test).endswith("TYPE_CHECKING"):
            continue
        pending += ast.iter_child_nodes(node)
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            base = None
            if isinstance(node, ast.ImportFrom):
                base = "." * node.level + (node.module or "")
            statements.append((base, [alias.name for alias in node.names]))
    return statements


def _source_file(module: str, packages: set[str]) -> Path | None:
    """Return the file of a module that `code_digest` follows, else None."""
    top = module.partition(".")[0]
    if top in sys.stdlib_module_names:
        return None
    try:
        # the top-level package first: finding a submodule imports its parents
        spec = importlib.util.find_spec(top)
        followed = spec is not None and (top in packages or not _is_installed(spec.origin))
        spec = importlib.util.find_spec(module) if followed and module != top else spec
    except (ImportError, ValueError):
        return None
    origin = spec.origin if followed and spec else None
    return Path(origin) if origin and origin.endswith(".py") else None


def _is_installed(origin: str | None) -> bool:
    return any(part in _INSTALLED for part in Path(origin or "").parts)
