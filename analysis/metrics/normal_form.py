"""The normal form of a Python program: equal for programs that differ only in how they are written.

Layout, comments, docstrings and the names that a program chooses for itself go; structure,
constants, and the names that it uses from Python and its libraries stay.
"""

from __future__ import annotations

import ast
import sys
import warnings
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import ClassVar

from analysis.load.compute import parallel_map

# The parser needs up to a kilobyte for each, and no contest program is longer.
MAX_CHARS = 65_536
MANY = 5_000  # new programs for which it pays to start processes
_prepared: dict[str, str | None] = {}
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
_COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
_WITH_NAMES = (*_FUNCTIONS, ast.ClassDef)  # bind their name here, and have a scope of their own
_DECLARATIONS = (ast.Global, ast.Nonlocal)
_BINDING = dict.fromkeys((ast.ExceptHandler, ast.MatchAs, ast.MatchStar), "name")
_BINDING |= {ast.MatchMapping: "rest"}


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
    _prepared.update(zip(new, parallel_map(_find, new, len(new) >= MANY), strict=True))


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
        _Canonical(tree, program).children(tree)
        return ast.unparse(tree)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None


# Fields in which no node stands that has anything to say: texts, numbers, and nodes without
# fields.
_PLAIN = {"ctx", "op", "ops", "id", "attr", "name", "asname", "rest", "level", "module", "kind"}
_PLAIN |= {"type_comment", "conversion", "is_async", "simple", "lineno", "tag"}
_FIELDS = {
    kind: tuple(name for name in kind._fields if name not in _PLAIN)
    for kind in vars(ast).values()
    if isinstance(kind, type) and issubclass(kind, ast.AST)
}
if sys.version_info >= (3, 12):  # `type X = ...`, whose name is a node
    _FIELDS[ast.TypeAlias] = ast.TypeAlias._fields
_BLOCKS = {"body", "orelse", "finalbody"}  # where statements stand
# Where a name may be bound but by :=, which may stand in every expression.
_OF_BINDINGS = _BLOCKS | {"targets", "target", "names", "name", "elts", "items", "optional_vars"}
_OF_BINDINGS |= {"handlers", "cases", "pattern", "patterns", "kwd_patterns"}
_BINDING_FIELDS = {
    kind: tuple(name for name in fields if name in _OF_BINDINGS or kind is ast.Starred)
    for kind, fields in _FIELDS.items()
}


class _Canonical:
    """Renames what the program binds, innermost scope first, and drops statements that are only a
    string: docstrings, and strings used as comments. In place.

    Not an `ast.NodeTransformer`, which takes twice as long: it looks up a method's name for each
    node, and every field of every node.
    """

    def __init__(self, tree: ast.Module, program: str) -> None:
        declared: set[str] = set()
        if "global" in program:  # or else a walk through the whole tree for nothing
            declared.update(*(n.names for n in ast.walk(tree) if isinstance(n, ast.Global)))
        self.fields = _FIELDS if ":=" in program else _BINDING_FIELDS
        names = _bound(tree.body, self.fields) | declared
        # A scope maps the names it binds to their new ones, which are given out on first sight.
        self.scopes: list[dict[str, str | None]] = [dict.fromkeys(names)]
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

    def children(self, node: ast.AST) -> None:
        """All that stands in a node, in its order."""
        handlers = self.HANDLERS
        for field in _FIELDS[type(node)]:
            value = getattr(node, field, None)
            if type(value) is list:
                if field in _BLOCKS and any(map(_is_text, value)):
                    value[:] = [n for n in value if not _is_text(n)]
                    if not value and field == "body" and type(node) is not ast.Module:
                        value.append(ast.Pass())
                for child in value:
                    if isinstance(child, ast.AST):
                        handlers.get(type(child), _Canonical.children)(self, child)
            elif isinstance(value, ast.AST):
                handlers.get(type(value), _Canonical.children)(self, value)

    def _inside(self, node: ast.AST, names: set[str], is_class: bool = False) -> None:
        self.scopes.append(dict.fromkeys(names))
        self.is_class.append(is_class)
        self.children(node)
        self.scopes.pop()
        self.is_class.pop()

    def _function(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        node.name = self.rename(node.name)
        self._inside(node, _parameters(node) | _bound(node.body, self.fields))

    def _lambda(self, node: ast.Lambda) -> None:
        self._inside(node, _parameters(node) | _bound([node.body], self.fields))

    def _class(self, node: ast.ClassDef) -> None:
        node.name = self.rename(node.name)
        self._inside(node, _bound(node.body, self.fields), is_class=True)

    def _comprehension(self, node: ast.AST) -> None:
        self._inside(node, _bound([g.target for g in node.generators], self.fields))

    def _name(self, node: ast.Name) -> None:
        node.id = self.rename(node.id)

    def _arg(self, node: ast.arg) -> None:
        node.arg = self.rename(node.arg)
        self.children(node)

    def _alias(self, node: ast.alias) -> None:
        if name := _imported(node):
            node.asname = self.rename(name)

    def _declaration(self, node: ast.Global | ast.Nonlocal) -> None:
        node.names = [self.rename(name) for name in node.names]

    def _binding(self, node: ast.AST) -> None:
        field = _BINDING[type(node)]
        if name := getattr(node, field):
            setattr(node, field, self.rename(name))
        self.children(node)

    HANDLERS: ClassVar = {
        **dict.fromkeys(_FUNCTIONS, _function),
        **dict.fromkeys(_COMPREHENSIONS, _comprehension),
        **dict.fromkeys(_DECLARATIONS, _declaration),
        **dict.fromkeys(_BINDING, _binding),
        ast.Lambda: _lambda,
        ast.ClassDef: _class,
        ast.Name: _name,
        ast.arg: _arg,
        ast.alias: _alias,
        ast.Constant: lambda self, node: None,
    }


def _is_text(node: ast.AST) -> bool:
    """Whether a statement is only a string."""
    if type(node) is not ast.Expr or type(node.value) is not ast.Constant:
        return False
    return isinstance(node.value.value, str)


def _imported(node: ast.alias) -> str | None:
    """The name that an import binds; none that the text tells for `*`."""
    return None if node.name == "*" else node.asname or node.name.split(".")[0]


def _parameters(node: ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda) -> set[str]:
    return {n.arg for n in ast.iter_child_nodes(node.args) if isinstance(n, ast.arg)}


def _bound(body: Iterable[ast.AST], fields: Mapping[type, Sequence[str]]) -> set[str]:
    """The names that these statements bind in their own scope, not in the scopes within; looked
    for in these fields of each kind of node."""
    names: set[str] = set()
    elsewhere: set[str] = set()
    todo = list(body)
    while todo:
        node = todo.pop()
        kind = type(node)
        if kind is ast.Name:
            if type(node.ctx) is not ast.Load:
                names.add(node.id)
            continue
        if kind in _WITH_NAMES:
            names.add(node.name)
            continue
        if kind in _COMPREHENSIONS:
            # := inside a comprehension binds in the scope around it.
            names |= {n.target.id for n in ast.walk(node) if isinstance(n, ast.NamedExpr)}
            continue
        if kind is ast.Lambda:
            continue
        if kind in _DECLARATIONS:
            elsewhere.update(node.names)
        elif kind is ast.alias:
            if name := _imported(node):
                names.add(name)
        elif kind in _BINDING and (name := getattr(node, _BINDING[kind])):
            names.add(name)
        for field in fields[kind]:
            value = getattr(node, field, None)
            if type(value) is list:
                todo += [child for child in value if isinstance(child, ast.AST)]
            elif isinstance(value, ast.AST):
                todo.append(value)
    return names - elsewhere
