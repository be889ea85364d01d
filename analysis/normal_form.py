"""The normal form of a Python program: equal for programs that differ only in how they are written.

Layout, comments, docstrings and the names that a program chooses for itself go; structure,
constants, and the names that it uses from Python and its libraries stay.
"""

from __future__ import annotations

import ast
import os
import warnings
from collections.abc import Iterable
from concurrent.futures import ProcessPoolExecutor
from functools import lru_cache
from multiprocessing import get_context

# The parser needs up to a kilobyte for each, and no contest program is longer.
MAX_CHARS = 65_536
MANY = 5_000  # new programs for which it pays to start processes
_prepared: dict[str, str | None] = {}
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
_COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)


def normal_form(program: str) -> str | None:
    """The program's text after parsing, canonical renaming and unparsing; None if it cannot parse
    or has more than MAX_CHARS characters.

    Every name that the program binds (variables, parameters, functions, classes, imports) becomes
    v0, v1, … in the order of first appearance, scope by scope: two loops that share the name of
    their variable equal two loops that do not. Builtins and modules keep theirs, and so do
    attributes, methods and keywords of calls, of which the text alone does not tell whose they are.
    """
    return _prepared[program] if program in _prepared else _found(program)


def prepare(programs: Iterable[str]) -> None:
    """Find the normal forms of these programs ahead and keep them; of many on all cores."""
    new = [program for program in dict.fromkeys(programs) if program not in _prepared]
    cores = len(os.sched_getaffinity(0))
    if len(new) < MANY or cores == 1:
        _prepared.update((program, normal_form(program)) for program in new)
        return
    size = len(new) // (8 * cores) + 1
    with ProcessPoolExecutor(cores, get_context("forkserver")) as pool:
        _prepared.update(zip(new, pool.map(_find, new, chunksize=size), strict=True))


@lru_cache(maxsize=1 << 16)
def _found(program: str) -> str | None:
    return _find(program)


def _find(program: str) -> str | None:
    if len(program) > MAX_CHARS:
        return None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            tree = ast.parse(program)
        tree = _Canonical(tree, "global" in program).visit(_WithoutStrings().visit(tree))
        return ast.unparse(tree)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None


class _WithoutStrings(ast.NodeTransformer):
    """Drops statements that are only a string: docstrings, and strings used as comments."""

    def generic_visit(self, node: ast.AST) -> ast.AST:
        super().generic_visit(node)
        if not isinstance(node, ast.Module) and getattr(node, "body", None) == []:
            node.body = [ast.Pass()]
        return node

    def visit_Expr(self, node: ast.Expr) -> ast.Expr | None:
        is_text = isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
        return None if is_text else node


class _Canonical(ast.NodeTransformer):
    """Renames what the program binds, innermost scope first."""

    def __init__(self, tree: ast.Module, with_global: bool) -> None:
        declared: set[str] = set()
        if with_global:  # or else a walk through the whole tree for nothing
            declared.update(*(n.names for n in ast.walk(tree) if isinstance(n, ast.Global)))
        # A scope maps the names it binds to their new ones, which are given out on first sight.
        self.scopes: list[dict[str, str | None]] = [dict.fromkeys(_bound(tree.body) | declared)]
        self.is_class = [False]
        self.count = 0

    def rename(self, name: str) -> str:
        for depth in range(len(self.scopes) - 1, -1, -1):
            # A class body's names are seen from that body alone, not from its methods.
            if self.is_class[depth] and depth < len(self.scopes) - 1:
                continue
            scope = self.scopes[depth]
            if name in scope:
                if self.is_class[depth]:
                    return name
                if scope[name] is None:
                    scope[name] = f"v{self.count}"
                    self.count += 1
                return scope[name]
        return name

    def _inside(self, node: ast.AST, names: set[str], is_class: bool = False) -> ast.AST:
        self.scopes.append(dict.fromkeys(names))
        self.is_class.append(is_class)
        self.generic_visit(node)
        self.scopes.pop()
        self.is_class.pop()
        return node

    def visit_FunctionDef(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> ast.AST:
        node.name = self.rename(node.name)
        return self._function(node, node.body)

    visit_AsyncFunctionDef = visit_FunctionDef

    def visit_Lambda(self, node: ast.Lambda) -> ast.AST:
        return self._function(node, [node.body])

    def _function(self, node: ast.AST, body: list[ast.AST]) -> ast.AST:
        parameters = {n.arg for n in ast.iter_child_nodes(node.args) if isinstance(n, ast.arg)}
        return self._inside(node, parameters | _bound(body))

    def visit_ClassDef(self, node: ast.ClassDef) -> ast.AST:
        node.name = self.rename(node.name)
        return self._inside(node, _bound(node.body), is_class=True)

    def _comprehension(self, node: ast.AST) -> ast.AST:
        return self._inside(node, _bound([g.target for g in node.generators]))

    visit_ListComp = visit_SetComp = visit_DictComp = visit_GeneratorExp = _comprehension

    def visit_Name(self, node: ast.Name) -> ast.Name:
        node.id = self.rename(node.id)
        return node

    def visit_arg(self, node: ast.arg) -> ast.AST:
        node.arg = self.rename(node.arg)
        return self.generic_visit(node)

    def visit_alias(self, node: ast.alias) -> ast.alias:
        if node.name != "*":
            node.asname = self.rename(node.asname or node.name.split(".")[0])
        return node

    def visit_Global(self, node: ast.Global | ast.Nonlocal) -> ast.AST:
        node.names = [self.rename(name) for name in node.names]
        return node

    visit_Nonlocal = visit_Global

    def _named(self, node: ast.ExceptHandler | ast.MatchAs | ast.MatchStar) -> ast.AST:
        node.name = node.name and self.rename(node.name)
        return self.generic_visit(node)

    visit_ExceptHandler = visit_MatchAs = visit_MatchStar = _named

    def visit_MatchMapping(self, node: ast.MatchMapping) -> ast.AST:
        node.rest = node.rest and self.rename(node.rest)
        return self.generic_visit(node)


def _bound(body: Iterable[ast.AST]) -> set[str]:
    """The names that these statements bind in their own scope, not in the scopes within."""
    names: set[str] = set()
    elsewhere: set[str] = set()
    todo = list(body)
    while todo:
        node = todo.pop()
        if isinstance(node, (*_FUNCTIONS, ast.ClassDef)):
            names.add(node.name)
        elif isinstance(node, _COMPREHENSIONS):
            # := inside a comprehension binds in the scope around it.
            names |= {n.target.id for n in ast.walk(node) if isinstance(n, ast.NamedExpr)}
        elif not isinstance(node, ast.Lambda):
            if isinstance(node, (ast.Global, ast.Nonlocal)):
                elsewhere.update(node.names)
            names.update(_binds(node))
            todo.extend(ast.iter_child_nodes(node))
    return names - elsewhere


def _binds(node: ast.AST) -> list[str]:
    """The names that this one node binds, its children left aside."""
    match node:
        case ast.Name(id=name, ctx=ast.Store() | ast.Del()):
            return [name]
        case ast.alias(name=name, asname=asname) if name != "*":
            return [asname or name.split(".")[0]]
        case ast.ExceptHandler(name=str(name)) | ast.MatchMapping(rest=str(name)):
            return [name]
        case ast.MatchAs(name=str(name)) | ast.MatchStar(name=str(name)):
            return [name]
    return []
