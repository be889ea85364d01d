"""What the host asks Python's own parser about a text that may be a program."""

from __future__ import annotations

import ast
import warnings

MAX_PARSED_CHARS = 65_536  # the host's parser needs up to a kilobyte for each character

_ACTS = (ast.Call, ast.Import, ast.ImportFrom, ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)


def parsed(text: str) -> ast.Module | None:
    """The text as a Python 3 module of at least one statement; None if it is none, or too long."""
    if len(text) > MAX_PARSED_CHARS:
        return None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError, OverflowError):
        return None
    return tree if tree.body else None


def acts(tree: ast.AST) -> bool:
    """Whether anything is called, defined or imported: `3`, `YES` and `[1, 2]` are Python too."""
    return any(isinstance(node, _ACTS) for node in ast.walk(tree))


def is_program(text: str) -> bool:
    """Whether the text parses, and acts."""
    tree = parsed(text)
    return tree is not None and acts(tree)
