"""Functions that a configuration names, module.function, and a hash of the code behind them."""

from __future__ import annotations

import ast
import hashlib
import importlib
import importlib.util
import sys
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

_INSTALLED = ("site-packages", "dist-packages")


def load_function(name: str, key: str) -> Callable:
    """The function that `name` (package.module.function) stands for; `key` is the configuration's.

    Raises ValueError in one line: where no such module can be imported, or it has no such function.
    """
    module_name, _, attribute = name.rpartition(".")
    if not module_name:
        raise ValueError(f"{key}={name}: write package.module.function")
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name and f"{module_name}.".startswith(f"{error.name}."):
            where = "it must lie in the folder you start from or on PYTHONPATH"
            raise ValueError(f"{key}={name}: there is no module {error.name}; {where}") from error
        raise ValueError(f"{key}={name}: {module_name} needs {error.name}, not found") from error
    except Exception as error:
        # whatever the module's own lines raise
        told = f"{type(error).__name__}: {' '.join(str(error).split())}"
        raise ValueError(f"{key}={name}: {module_name} cannot be imported: {told}") from error
    found = getattr(module, attribute, None)
    if not callable(found):
        own = [n for n, held in vars(module).items() if _defined_in(module_name, held)]
        raise ValueError(
            f"{key}={name}: {module_name} has no function {attribute}; "
            f"it has {', '.join(own) or 'none'}"
        )
    return found


def code_digest(*modules: str) -> str:
    """16 hex digits over the source of modules and of all that they import, found by reading it.

    Not followed are the standard library and installed packages (of which the modules asked for,
    and others of their package, may be a part themselves).
    """
    tops = {module.partition(".")[0] for module in modules}
    found: dict[str, bytes] = {}
    left = list(modules)
    while left:
        module = left.pop()
        if module in found or (file := _source(module, tops)) is None:
            continue
        found[module] = file.read_bytes()
        package = module if file.stem == "__init__" else module.rpartition(".")[0]
        left += _imports(found[module], package, tops)
    return hashlib.sha256(repr(sorted(found.items())).encode()).hexdigest()[:16]


def _defined_in(module: str, held: object) -> bool:
    return callable(held) and getattr(held, "__module__", None) == module


def _imports(source: bytes, package: str, tops: set[str]) -> Iterator[str]:
    """The modules that a source imports, also in its functions, but not for its types only."""
    for relative, names in _statements(source):
        if relative is None:
            yield from names
            continue
        dots = relative.startswith(".")
        base = importlib.util.resolve_name(relative, package) if dots else relative
        for name in names:
            module = f"{base}.{name}"
            yield module if _source(module, tops) else base


@cache
def _statements(source: bytes) -> list[tuple[str | None, list[str]]]:
    """Of `from a import b` a and b, of `import b` None and b; parsed once for all that ask."""
    found: list[tuple[str | None, list[str]]] = []
    left: list[ast.AST] = [ast.parse(source)]
    while left:
        node = left.pop()
        if isinstance(node, ast.If) and ast.unparse(node.test).endswith("TYPE_CHECKING"):
            continue
        left += ast.iter_child_nodes(node)
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            is_from = isinstance(node, ast.ImportFrom)
            base = "." * node.level + (node.module or "") if is_from else None
            found.append((base, [alias.name for alias in node.names]))
    return found


def _source(module: str, tops: set[str]) -> Path | None:
    """The file of a module, if it is one that is followed."""
    top = module.partition(".")[0]
    if top in sys.stdlib_module_names:
        return None
    try:
        # the top first: to look for a part of a package imports the package
        spec = importlib.util.find_spec(top)
        ours = spec is not None and (top in tops or not _is_installed(spec.origin))
        spec = importlib.util.find_spec(module) if ours and module != top else spec
    except (ImportError, ValueError):
        return None
    if not ours or spec is None or not (spec.origin or "").endswith(".py"):
        return None
    return Path(spec.origin)


def _is_installed(origin: str | None) -> bool:
    return any(part in _INSTALLED for part in Path(origin or "").parts)
