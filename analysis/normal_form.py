"""The normal form of a Python program: equal for programs that differ only in how they are written.

It drops layout, comments, docstrings and the names that a program chooses for itself. It keeps
structure, constants, and the names that a program uses from Python and its libraries.
"""

from __future__ import annotations

import ast
import sys
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any, ClassVar

from analysis.compute import parallel_map

# The parser needs up to a kilobyte for each, and no contest program is longer.
MAX_CHARS = 65_536
MIN_PARALLEL = 5_000  # new programs from which worker processes pay
_precomputed: dict[str, str | None] = {}

Function = ast.FunctionDef | ast.AsyncFunctionDef
Comprehension = ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp
_NAMED_SCOPES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)  # bind their name outside
_COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
_DECLARATIONS = (ast.Global, ast.Nonlocal)
# Nodes that bind a name given as text, and the field that holds it.
_BINDING_FIELD: dict[type[ast.AST], str] = {
    ast.ExceptHandler: "name",
    ast.MatchAs: "name",
    ast.MatchStar: "name",
    ast.MatchMapping: "rest",
}


def normal_form(program: str) -> str | None:
    """Return the program parsed, canonically renamed and unparsed; None if it cannot be parsed.

    Programs longer than MAX_CHARS are not parsed. Every name that the program binds (variables,
    parameters, functions, classes, imports) becomes v0, v1, … in order of first appearance, scope
    by scope: two loops with the same variable name equal two loops with different ones. Builtins
    and modules keep their names. So do attributes, methods and keyword arguments, because the text
    alone does not say to what they belong.
    """
    return _precomputed[program] if program in _precomputed else _cached_form(program)


def precompute_normal_forms(programs: Iterable[str]) -> None:
    """Compute and keep the normal forms of these programs; if many, on all cores."""
    new = [program for program in dict.fromkeys(programs) if program not in _precomputed]
    forms = parallel_map(_compute_form, new, len(new) >= MIN_PARALLEL)
    _precomputed.update(zip(new, forms, strict=True))


def _compute_form(program: str) -> str | None:
    if len(program) > MAX_CHARS:
        return None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            tree = ast.parse(program)
        _Renamer(tree, program).visit_children(tree)
        return ast.unparse(tree)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None


_cached_form = lru_cache(maxsize=1 << 16)(_compute_form)

# Fields that hold no node with names in it: texts, numbers, and nodes without fields.
_LEAF_FIELDS = {"ctx", "op", "ops", "id", "attr", "name", "asname", "rest", "level", "module"}
_LEAF_FIELDS |= {"kind", "type_comment", "conversion", "is_async", "simple", "lineno", "tag"}
_FIELDS: dict[type[ast.AST], tuple[str, ...]] = {
    kind: tuple(name for name in kind._fields if name not in _LEAF_FIELDS)
    for kind in vars(ast).values()
    if isinstance(kind, type) and issubclass(kind, ast.AST)
}
if sys.version_info >= (3, 12):  # `type X = ...`, whose name is a node
    _FIELDS[ast.TypeAlias] = ast.TypeAlias._fields
_BLOCKS = {"body", "orelse", "finalbody"}  # fields that hold statements
# Fields in which a name may be bound other than by :=, which may stand in every expression.
_BINDING_FIELDS = _BLOCKS | {"targets", "target", "names", "name", "elts", "items", "patterns"}
_BINDING_FIELDS |= {"optional_vars", "handlers", "cases", "pattern", "kwd_patterns"}
_FIELDS_OF_BINDINGS = {
    kind: tuple(name for name in fields if name in _BINDING_FIELDS or kind is ast.Starred)
    for kind, fields in _FIELDS.items()
}


class _Renamer:
    """Renames the names that a program binds, in place, innermost scope first.

    Drops statements that are only a string: docstrings, and strings used as comments. Not an
    `ast.NodeTransformer`, which takes twice as long: it looks up a method by name for each node,
    and visits every field of every node.
    """

    def __init__(self, tree: ast.Module, program: str) -> None:
        declared: set[str] = set()
        if "global" in program:  # otherwise a walk through the whole tree would be in vain
            declared.update(*(n.names for n in ast.walk(tree) if isinstance(n, ast.Global)))
        self.fields = _FIELDS if ":=" in program else _FIELDS_OF_BINDINGS
        names = _bound_names(tree.body, self.fields) | declared
        # A scope maps the names it binds to their new ones, which are given on first appearance.
        self.scopes: list[dict[str, str | None]] = [dict.fromkeys(names)]
        self.is_class = [False]
        self.renamed = 0

    def rename(self, name: str) -> str:
        for depth in range(len(self.scopes) - 1, -1, -1):
            # A class body's names are visible in that body alone, not in its methods.
            if self.is_class[depth] and depth < len(self.scopes) - 1:
                continue
            scope = self.scopes[depth]
            if name in scope:
                if self.is_class[depth]:
                    return name
                new_name = scope[name]
                if new_name is None:
                    new_name = scope[name] = f"v{self.renamed}"
                    self.renamed += 1
                return new_name
        return name

    def visit_children(self, node: ast.AST) -> None:
        """Visit all nodes within a node, in order."""
        handlers = self.HANDLERS
        for field in _FIELDS[type(node)]:
            value = getattr(node, field, None)
            if type(value) is list:
                if field in _BLOCKS and any(map(_is_only_string, value)):
                    value[:] = [n for n in value if not _is_only_string(n)]
                    if not value and field == "body" and type(node) is not ast.Module:
                        value.append(ast.Pass())
                for child in value:
                    if isinstance(child, ast.AST):
                        handlers.get(type(child), _Renamer.visit_children)(self, child)
            elif isinstance(value, ast.AST):
                handlers.get(type(value), _Renamer.visit_children)(self, value)

    def _visit_scope(self, node: ast.AST, names: set[str], is_class: bool = False) -> None:
        self.scopes.append(dict.fromkeys(names))
        self.is_class.append(is_class)
        self.visit_children(node)
        self.scopes.pop()
        self.is_class.pop()

    def _function(self, node: Function) -> None:
        node.name = self.rename(node.name)
        self._visit_scope(node, _parameters(node) | _bound_names(node.body, self.fields))

    def _lambda(self, node: ast.Lambda) -> None:
        self._visit_scope(node, _parameters(node) | _bound_names([node.body], self.fields))

    def _class(self, node: ast.ClassDef) -> None:
        node.name = self.rename(node.name)
        self._visit_scope(node, _bound_names(node.body, self.fields), is_class=True)

    def _comprehension(self, node: Comprehension) -> None:
        self._visit_scope(node, _bound_names([g.target for g in node.generators], self.fields))

    def _name(self, node: ast.Name) -> None:
        node.id = self.rename(node.id)

    def _arg(self, node: ast.arg) -> None:
        node.arg = self.rename(node.arg)
        self.visit_children(node)

    def _alias(self, node: ast.alias) -> None:
        if name := _imported_name(node):
            node.asname = self.rename(name)

    def _declaration(self, node: ast.Global | ast.Nonlocal) -> None:
        node.names = [self.rename(name) for name in node.names]

    def _binding(self, node: ast.AST) -> None:
        field = _BINDING_FIELD[type(node)]
        if name := getattr(node, field):
            setattr(node, field, self.rename(name))
        self.visit_children(node)

    def _constant(self, node: ast.Constant) -> None:
        """Leave constants as they are."""

    HANDLERS: ClassVar[dict[type[ast.AST], Callable[[_Renamer, Any], None]]] = {
        **dict.fromkeys(_BINDING_FIELD, _binding),
        ast.FunctionDef: _function,
        ast.AsyncFunctionDef: _function,
        ast.Lambda: _lambda,
        ast.ClassDef: _class,
        ast.ListComp: _comprehension,
        ast.SetComp: _comprehension,
        ast.DictComp: _comprehension,
        ast.GeneratorExp: _comprehension,
        ast.Name: _name,
        ast.arg: _arg,
        ast.alias: _alias,
        ast.Global: _declaration,
        ast.Nonlocal: _declaration,
        ast.Constant: _constant,
    }


def _is_only_string(node: ast.AST) -> bool:
    """Return whether a statement is only a string."""
    if type(node) is not ast.Expr or type(node.value) is not ast.Constant:
        return False
    return isinstance(node.value.value, str)


def _imported_name(node: ast.alias) -> str | None:
    """Return the name that an import binds; None for `*`, whose names are not in the text."""
    return None if node.name == "*" else node.asname or node.name.split(".")[0]


def _parameters(node: Function | ast.Lambda) -> set[str]:
    return {n.arg for n in ast.iter_child_nodes(node.args) if isinstance(n, ast.arg)}


def _bound_names(
    body: Iterable[ast.AST], fields: Mapping[type[ast.AST], Sequence[str]]
) -> set[str]:
    """Return the names that these statements bind in their own scope, not in inner scopes.

    `fields` names the fields to search, for each kind of node.
    """
    names: set[str] = set()
    declared_elsewhere: set[str] = set()
    todo: list[Any] = list(body)
    while todo:
        node = todo.pop()
        kind = type(node)
        if kind is ast.Name:
            if type(node.ctx) is not ast.Load:
                names.add(node.id)
            continue
        if kind in _NAMED_SCOPES:
            names.add(node.name)
            continue
        if kind in _COMPREHENSIONS:
            # := inside a comprehension binds in the enclosing scope.
            names |= {n.target.id for n in ast.walk(node) if isinstance(n, ast.NamedExpr)}
            continue
        if kind is ast.Lambda:
            continue
        if kind in _DECLARATIONS:
            declared_elsewhere.update(node.names)
        elif kind is ast.alias:
            if name := _imported_name(node):
                names.add(name)
        elif kind in _BINDING_FIELD and (name := getattr(node, _BINDING_FIELD[kind])):
            names.add(name)
        for field in fields[kind]:
            value = getattr(node, field, None)
            if type(value) is list:
                todo += [child for child in value if isinstance(child, ast.AST)]
            elif isinstance(value, ast.AST):
                todo.append(value)
    return names - declared_elsewhere
