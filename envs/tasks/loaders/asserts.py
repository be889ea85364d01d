"""Convert asserts to tests: `assert f(1, [2]) == 3` becomes a call with JSON arguments.

HumanEval and MBPP store their tests as Python code. The code is parsed and never run, so expected
results stay outside the sandbox. If one assert says more than a call test can express, the problem
is skipped, because the remaining tests would accept wrong programs.

JSON has no tuple. A returned tuple equals the list of its items; a tuple among the arguments would
reach the program as a list, so the problem is skipped. `assert f(x)` expects True and `assert not
f(x)` False, although Python accepts other truthy and falsy values.
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

MAX_SIZE = 1_000_000  # items, characters or bits of a value computed by a row's arithmetic
_ARITHMETIC = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.Pow: operator.pow,
}
_IGNORED = (ast.Pass, ast.Import, ast.ImportFrom)


def parse(code: Any, what: str) -> list[ast.stmt]:
    """Parse a column of Python code into its statements. Raises SkipRow if it is not Python."""
    if not isinstance(code, str):
        raise SkipRow(f"{what} is not a text")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return ast.parse(code).body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        raise SkipRow(f"{what} is not Python") from None


def asserted_tests(statements: Sequence[ast.stmt]) -> tuple[str, tuple[Test, ...]]:
    """Return (name of the one function that the asserts call, its tests). Raises SkipRow.

    Imports, strings and asserts of a true constant are ignored.
    """
    functions: set[str] = set()
    tests: list[Test] = []
    for statement in statements:
        match statement:
            case ast.Assert(test=ast.Constant(value=value)) if value:
                continue
            case ast.Assert(test=test):
                call, expected = _asserted_call(test)
                functions.add(ast.unparse(call.func))
                arguments = [literal(argument) for argument in call.args]
                tests.append(Test(_as_json(arguments), _as_json(expected, returned=True)))
            case ast.Expr(value=ast.Constant()):
                continue
            case _ if not isinstance(statement, _IGNORED):
                raise SkipRow("the tests are more than asserts")
    if not tests:
        raise SkipRow("no tests")
    if len(functions) > 1:
        raise SkipRow("the asserts call more than one function")
    return functions.pop(), tuple(dict.fromkeys(tests))


def _asserted_call(test: ast.expr) -> tuple[ast.Call, Any]:
    """Return (the call, its expected result) of an assert's condition."""
    match test:
        case ast.Compare(
            left=ast.Call(func=ast.Name("abs"), args=[ast.BinOp(left, ast.Sub(), right)]),
            ops=[ast.Lt() | ast.LtE()],
            comparators=[within],
        ):
            return _close_to(left, right, literal(within), 0.0)
        case ast.Call(
            func=ast.Name("isclose") | ast.Attribute(ast.Name("math"), "isclose"),
            args=[left, right],
            keywords=keywords,
        ):
            tolerances: dict[str | None, Any] = {"abs_tol": 0.0, "rel_tol": 1e-9}
            tolerances |= {keyword.arg: literal(keyword.value) for keyword in keywords}
            return _close_to(left, right, tolerances["abs_tol"], tolerances["rel_tol"])
        case ast.Compare(left=left, ops=[ast.Eq()], comparators=[right]):
            return _equal_to(left, right)
        case ast.Compare(
            left=left, ops=[ast.Is()], comparators=[ast.Constant(None | True | False) as right]
        ):
            return _equal_to(left, right)
        case ast.UnaryOp(ast.Not(), operand=call):
            return _plain_call(call), False
    return _plain_call(test), True


def _equal_to(left: ast.expr, right: ast.expr) -> tuple[ast.Call, Any]:
    call, expected = (left, right) if isinstance(left, ast.Call) else (right, left)
    return _plain_call(call), literal(expected)


def _close_to(
    left: ast.expr, right: ast.expr, absolute: Any, relative: Any
) -> tuple[ast.Call, float]:
    """Return a test with a float result, if the assert is not more tolerant than the checker."""
    call, expected = _equal_to(left, right)
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
    """Evaluate a literal, or arithmetic on literals up to MAX_SIZE. Raises SkipRow otherwise."""
    match node:
        case ast.Constant(value=value):
            return value
        case ast.List(elts=items):
            return [literal(item) for item in items]
        case ast.Tuple(elts=items):
            return tuple(literal(item) for item in items)
        case ast.Dict(keys=keys, values=values):
            names = [
                key.value
                for key in keys
                if isinstance(key, ast.Constant) and isinstance(key.value, str)
            ]
            if len(names) < len(keys):
                raise SkipRow("an assert holds a dict whose keys are not all strings")
            return dict(zip(names, map(literal, values), strict=True))
        case ast.Set():
            raise SkipRow("an assert holds a set")
        case ast.UnaryOp(op=ast.USub() | ast.UAdd(), operand=operand):
            value = literal(operand)
            if isinstance(value, int | float):
                return -value if isinstance(node.op, ast.USub) else +value
        case ast.BinOp(left=left, op=op, right=right):
            return _arithmetic(type(op), literal(left), literal(right))
    raise SkipRow("an assert holds more than calls and literals")


def _arithmetic(op: type[ast.operator], left: Any, right: Any) -> Any:
    """Compute with numbers, or concatenate or repeat sequences, up to MAX_SIZE."""
    numbers = isinstance(left, int | float) and isinstance(right, int | float)
    joined = op is ast.Add and type(left) is type(right) and isinstance(left, str | list | tuple)
    if op is ast.Mult and isinstance(left, int):
        left, right = right, left  # a repeated sequence first
    repeated = op is ast.Mult and isinstance(left, str | list | tuple) and isinstance(right, int)
    if op in _ARITHMETIC and (numbers or joined or repeated):
        times = right if isinstance(right, int) and (repeated or op is ast.Pow) else 1
        if _size(left) * abs(times) <= MAX_SIZE:
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
    _require_faithful(value, returned)
    with integers_of_any_length():
        return json.dumps(value)


def _require_faithful(value: Any, returned: bool) -> None:
    """Raise SkipRow if JSON would change the value of an argument or of a result."""
    if isinstance(value, tuple) and not returned:
        raise SkipRow("an argument holds a tuple, which JSON would make a list")
    if isinstance(value, list | tuple):
        for item in value:
            _require_faithful(item, returned)
    elif isinstance(value, dict):
        _require_faithful(list(value.values()), returned)
    elif not isinstance(value, str | int | float | None):
        raise SkipRow(f"an assert holds a {type(value).__name__}")
