"""Tests out of asserts: `assert f(1, [2]) == 3` becomes a call with JSON arguments and its result.

HumanEval and MBPP keep their tests as Python code. It is read and never run, so that expected
results stay outside the sandbox. An assert that says more than a call test can hold makes the whole
problem skipped: the tests that are left would accept wrong programs.

JSON has no tuple: one that is returned equals the list of its items, but one among the arguments
would reach the program as a list, so that it makes the problem skipped. `assert f(x)` expects True
and `assert not f(x)` False, where Python would take other values of that truth too.
"""

from __future__ import annotations

import ast
import json
import operator
import warnings
from collections.abc import Sequence
from typing import Any

from envs.judge.checker import ABSOLUTE_TOLERANCE, RELATIVE_TOLERANCE
from envs.problem import Test
from envs.tasks.loaders.field_parsers import SkipRow, integers_of_any_length

LARGEST = 1_000_000  # items, characters or bits of a value that a row's arithmetic may build
_ARITHMETIC = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.Pow: operator.pow,
}
_NOTHING_TESTED = (ast.Pass, ast.Import, ast.ImportFrom)


def parse(code: Any, what: str) -> list[ast.stmt]:
    """The statements of a column that holds Python; SkipRow where it does not."""
    if not isinstance(code, str):
        raise SkipRow(f"{what} is not a text")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return ast.parse(code).body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        raise SkipRow(f"{what} is not Python") from None


def asserted_tests(statements: Sequence[ast.stmt]) -> tuple[str, tuple[Test, ...]]:
    """(the one function that the asserts call, its tests). Raises SkipRow.

    Imports, strings and asserts of a true constant test nothing and are passed over.
    """
    functions: set[str] = set()
    tests: list[Test] = []
    for statement in statements:
        match statement:
            case ast.Assert(test=ast.Constant(value=value)) if value:
                continue
            case ast.Assert(test=test):
                call, expected = _asserted(test)
                functions.add(call.func.id)
                arguments = [literal(argument) for argument in call.args]
                tests.append(Test(_as_json(arguments), _as_json(expected, returned=True)))
            case ast.Expr(value=ast.Constant()):
                continue
            case _ if not isinstance(statement, _NOTHING_TESTED):
                raise SkipRow("the tests are more than asserts")
    if not tests:
        raise SkipRow("no tests")
    if len(functions) > 1:
        raise SkipRow("the asserts call more than one function")
    return functions.pop(), tuple(dict.fromkeys(tests))


def _asserted(test: ast.expr) -> tuple[ast.Call, Any]:
    """(the call, what it must return) of an assert's condition."""
    match test:
        case ast.Compare(
            left=ast.Call(func=ast.Name("abs"), args=[ast.BinOp(one, ast.Sub(), other)]),
            ops=[ast.Lt() | ast.LtE()],
            comparators=[within],
        ):
            return _near(one, other, literal(within), 0.0)
        case ast.Call(
            func=ast.Name("isclose") | ast.Attribute(ast.Name("math"), "isclose"),
            args=[one, other],
            keywords=given,
        ):
            tolerances = {"abs_tol": 0.0, "rel_tol": 1e-9}
            tolerances |= {keyword.arg: literal(keyword.value) for keyword in given}
            return _near(one, other, tolerances["abs_tol"], tolerances["rel_tol"])
        case ast.Compare(left=one, ops=[ast.Eq()], comparators=[other]):
            return _sides(one, other)
        case ast.Compare(
            left=one, ops=[ast.Is()], comparators=[ast.Constant(None | True | False) as other]
        ):
            return _sides(one, other)
        case ast.UnaryOp(ast.Not(), operand=call):
            return _plain_call(call), False
    return _plain_call(test), True


def _sides(one: ast.expr, other: ast.expr) -> tuple[ast.Call, Any]:
    call, expected = (one, other) if isinstance(one, ast.Call) else (other, one)
    return _plain_call(call), literal(expected)


def _near(one: ast.expr, other: ast.expr, absolute: Any, relative: Any) -> tuple[ast.Call, float]:
    """A float test, if the assert is not more generous than the checker."""
    call, expected = _sides(one, other)
    numbers = (expected, absolute, relative)
    if not all(isinstance(number, int | float) for number in numbers):
        raise SkipRow("an assert compares what is no number")
    allowed = max(ABSOLUTE_TOLERANCE, RELATIVE_TOLERANCE * abs(expected))
    if max(absolute, relative * abs(expected)) > allowed:
        raise SkipRow("an assert allows more than the checker's tolerance")
    return call, float(expected)


def _plain_call(node: ast.expr) -> ast.Call:
    match node:
        case ast.Call(func=ast.Name(), keywords=[]):
            return node
    raise SkipRow("an assert is not one call compared with a literal")


def literal(node: ast.expr) -> Any:
    """The value of a literal, or of arithmetic on literals up to LARGEST; SkipRow for the rest."""
    match node:
        case ast.Constant(value=value):
            return value
        case ast.List(elts=items):
            return [literal(item) for item in items]
        case ast.Tuple(elts=items):
            return tuple(literal(item) for item in items)
        case ast.Dict(keys=keys, values=values):
            names = [key.value if isinstance(key, ast.Constant) else None for key in keys]
            if not all(isinstance(name, str) for name in names):
                raise SkipRow("an assert holds a dict whose keys are not all strings")
            return dict(zip(names, map(literal, values), strict=True))
        case ast.Set():
            raise SkipRow("an assert holds a set")
        case ast.UnaryOp(op=ast.USub() | ast.UAdd(), operand=operand):
            value = literal(operand)
            if isinstance(value, int | float):
                return -value if isinstance(node.op, ast.USub) else +value
        case ast.BinOp(left=left, op=op, right=right):
            return _combined(type(op), literal(left), literal(right))
    raise SkipRow("an assert holds more than calls and literals")


def _combined(op: type[ast.operator], left: Any, right: Any) -> Any:
    """Arithmetic of numbers; sequences joined, or repeated, as long as the value stays small."""
    numbers = isinstance(left, int | float) and isinstance(right, int | float)
    joined = op is ast.Add and type(left) is type(right) and isinstance(left, str | list | tuple)
    if op is ast.Mult and isinstance(left, int):
        left, right = right, left  # the sequence first, if one is repeated
    repeated = op is ast.Mult and isinstance(left, str | list | tuple) and isinstance(right, int)
    if op in _ARITHMETIC and (numbers or joined or repeated):
        times = right if isinstance(right, int) and (repeated or op is ast.Pow) else 1
        if _size(left) * abs(times) <= LARGEST:
            try:
                return _ARITHMETIC[op](left, right)
            except (ArithmeticError, ValueError):
                pass
    raise SkipRow("an assert holds arithmetic that is not followed")


def _size(value: Any) -> int:
    if isinstance(value, list | tuple):
        return 1 + sum(map(_size, value))
    if isinstance(value, dict):
        return 1 + sum(map(_size, value.values()))
    return 1 + (value.bit_length() if isinstance(value, int) else len(str(value)))


def _as_json(value: Any, *, returned: bool = False) -> str:
    _check(value, returned)
    with integers_of_any_length():
        return json.dumps(value)


def _check(value: Any, returned: bool) -> None:
    """Raises SkipRow for what the function would get, or give, otherwise than the assert says."""
    if isinstance(value, tuple) and not returned:
        raise SkipRow("an argument holds a tuple, which JSON would make a list")
    if isinstance(value, list | tuple):
        for item in value:
            _check(item, returned)
    elif isinstance(value, dict):
        _check(list(value.values()), returned)
    elif not isinstance(value, str | int | float | None):
        raise SkipRow(f"an assert holds a {type(value).__name__}")
