"""Programs as texts: their normal form, their tokens, and how much programs of a problem differ.

The normal form is equal for programs that differ only in how they are written. It drops layout,
comments, docstrings and the names that a program chooses for itself. It keeps structure, constants,
and the names that a program uses from Python and its libraries.
"""

from __future__ import annotations

import ast
import gc
import os
import random
import re
import sys
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import lru_cache
from itertools import combinations
from multiprocessing import get_context, parent_process
from sys import intern
from typing import Any, ClassVar, TypeVar

from rapidfuzz.distance import Levenshtein

from analysis.pass_at_k import pass_at_k

Job = TypeVar("Job")
Result = TypeVar("Result")
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

    HANDLERS: ClassVar[dict[type[ast.AST], Callable[[_Renamer, Any], None]]] = {
        **dict.fromkeys(_BINDING_FIELD, _binding),
        **dict.fromkeys((ast.FunctionDef, ast.AsyncFunctionDef), _function),
        **dict.fromkeys(_COMPREHENSIONS, _comprehension),
        **dict.fromkeys(_DECLARATIONS, _declaration),
        ast.Lambda: _lambda,
        ast.ClassDef: _class,
        ast.Name: _name,
        ast.arg: _arg,
        ast.alias: _alias,
        ast.Constant: lambda self, node: None,  # constants stay as they are
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


# Tokens, and how much programs differ.

CACHED_LENGTH = 1024  # characters; tokens of longer programs are not cached


_TOKEN = re.compile(
    r"""\s++ | \#[^\n]*
      | ("(?:\\.|[^"\\\n]++)*+"? | '(?:\\.|[^'\\\n]++)*+'?
      | \d[\w.]* | \w+
      | \*\*=? | //=? | <<=? | >>=? | [-+*/%&|^=<>!:]= | -> | [^\w\s])""",
    re.VERBOSE,
)


def program_tokens(program: str) -> tuple[str, ...]:
    """Return names, numbers, strings and operators, without layout and comments; never fails.

    An unclosed string is one token up to the end of its line. Otherwise each of its quotes would
    be tried again, and a long line of \\" would take quadratic time.
    """
    return _cached_tokens(program) if len(program) <= CACHED_LENGTH else _tokens(program)


def _tokens(program: str) -> tuple[str, ...]:
    # The group is empty for blanks and comments. Interning keeps one copy of each token.
    return tuple(map(intern, filter(None, _TOKEN.findall(program))))


_cached_tokens = lru_cache(maxsize=1 << 17)(_tokens)  # one or two kilobytes each


def distinct_ratio(forms: Sequence[str]) -> float:
    """Return distinct forms / forms, for at least one accepted program.

    Biased: it falls as more samples are accepted, even if the model's distribution over right
    programs stays the same, because programs repeat more often. To compare models with different
    pass@1, use `distinct_share`.
    """
    return len(set(forms)) / len(forms)


def distinct_share(forms: Sequence[str], m: int) -> float:
    """Return the expected distinct forms among m accepted programs without replacement, over m.

    Rarefaction (Hurlbert 1971): E[distinct] = Σ_j 1 - C(c - c_j, m)/C(c, m) for c accepted programs
    of which c_j have form j. Its expectation does not depend on c, so models with different
    acceptance rates can be compared. In [1/m, 1]. Raises ValueError for fewer than m programs.
    """
    counts = Counter(forms).values()
    return sum(pass_at_k(len(forms), count, m) for count in counts) / m


def distinct_accepted(forms: Sequence[str], n: int, k: int) -> float:
    """Return the expected number of distinct accepted programs among k of n samples.

    `forms` are those of the accepted samples. E = Σ_j 1 − C(n − c_j, k)/C(n, k) over draws without
    replacement, for c_j samples of form j: rarefaction over all samples, so it is defined without
    accepted ones too, and its expectation does not depend on n. In [0, k]. Raises ValueError for
    n < k.
    """
    return sum(pass_at_k(n, count, k) for count in Counter(forms).values())


def distinct_n(programs: Sequence[str], n: int) -> float | None:
    """Return distinct n-grams of program tokens / all n-grams, over all samples of a problem.

    Li et al. 2016 (1510.03055), §5.2, there for dialogue. Right and wrong programs count, names as
    written. The value falls with the number of samples and their length, so compare at equal
    counts. None if no program has n tokens.
    """
    grams: set[tuple[str, ...]] = set()
    total = 0
    for program, count in Counter(programs).items():
        tokens = program_tokens(program)
        grams.update(zip(*(tokens[i:] for i in range(n)), strict=False))
        total += count * max(0, len(tokens) - n + 1)
    return len(grams) / total if total else None


def mean_edit_distance(forms: Sequence[str], *, max_pairs: int = 60, seed: int = 0) -> float:
    """Return the mean normalised token edit distance over pairs of accepted programs, in [0, 1].

    The distance is Levenshtein's between the tokens of two forms / the longer one's length, and 0
    for equal forms. As a mean over pairs, its expectation does not depend on the number accepted.
    If the distinct forms make more than `max_pairs` pairs, the mean over unequal pairs is estimated
    from that many, drawn with `seed`. Needs at least two programs.
    """
    counts = Counter(forms)
    pairs = list(combinations(sorted(counts), 2))
    if not pairs:
        return 0.0
    weights = [counts[a] * counts[b] for a, b in pairs]
    share_unequal = sum(weights) / (len(forms) * (len(forms) - 1) / 2)
    if len(pairs) > max_pairs:
        pairs = random.Random(seed).choices(pairs, weights, k=max_pairs)
        weights = [1] * max_pairs
    tokens = {form: program_tokens(form) for form in counts}
    total = 0.0
    for (a, b), weight in zip(pairs, weights, strict=True):
        total += weight * Levenshtein.normalized_distance(tokens[a], tokens[b])
    return share_unequal * total / sum(weights)


# Many programs, on all cores.

# Collecting garbage among nodes of parsed programs took a twelfth of the time and freed nothing.
COLLECT_THRESHOLD = 100_000


def cores() -> int:
    """Number of cores that this process may use."""
    return len(os.sched_getaffinity(0))


def parallel_map(
    function: Callable[[Job], Result], jobs: Sequence[Job], parallel: bool
) -> list[Result]:
    """Apply `function` to each job; if `parallel`, on all cores, except within a worker process."""
    if not parallel or cores() == 1 or parent_process():
        return list(map(function, jobs))
    context, size = get_context("forkserver"), len(jobs) // (8 * cores()) + 1
    with ProcessPoolExecutor(cores(), context, gc.set_threshold, (COLLECT_THRESHOLD,)) as processes:
        try:
            return list(processes.map(function, jobs, chunksize=size))
        except BaseException:  # the others' work would take minutes, in vain
            processes.shutdown(wait=False, cancel_futures=True)
            raise
