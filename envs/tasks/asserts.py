"""Assertions of function tests as our call tests, so that no expected value enters the sandbox.

`assert f(1, [2]) == 3` becomes the arguments `[1, [2]]` and the value `3`. Nothing is evaluated
but literals. An assertion that says anything else leaves its problem out as a whole, since with
fewer tests wrong programs would pass.
"""

from __future__ import annotations

import ast
import json
import operator
from collections.abc import Iterable
from typing import Any

from envs.problem import Test
from envs.tasks.fields import SkipRow

TOLERANCES = (1e-9, 1e-4)  # of float comparisons that the checker's own 1e-6 may stand for
_ARITHMETIC = {ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul}


def call_tests(assertions: Iterable[ast.stmt], function: str) -> tuple[Test, ...]:
    """Tests of `function`. Raises SkipRow for what is no assertion on one call of it."""
    found = [_call_test(statement, function) for statement in assertions]
    tests = tuple(dict.fromkeys(test for test in found if test is not None))
    if not tests:
        raise SkipRow("no tests")
    return tests


def called(assertion: str) -> str | None:
    """The name of the first function that is called in an assertion and is not Python's own."""
    own = {"set", "sorted", "abs", "len", "isclose", "list", "tuple", "str", "round", "sum"}
    calls = [node for node in ast.walk(parsed(assertion)) if isinstance(node, ast.Call)]
    names = [node.func.id for node in calls if isinstance(node.func, ast.Name)]
    return next((name for name in names if name not in own), None)


def parsed(code: str) -> ast.Module:
    """Code of a data set; SkipRow where it is no Python."""
    try:
        return ast.parse(code)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        raise SkipRow("a test is not Python") from None


def _call_test(statement: ast.stmt, function: str) -> Test | None:
    match statement:
        case ast.Expr(value=ast.Constant()) | ast.Assert(test=ast.Constant(value=True)):
            return None  # a docstring, or an assertion of nothing
        case ast.Assert(test=test):
            call, value = _claim(test)
        case _:
            raise SkipRow("a test is not a plain assertion")
    if not (isinstance(call.func, ast.Name) and call.func.id == function) or call.keywords:
        raise SkipRow("a test is not a plain assertion")
    arguments = [_value(argument, inside_call=True) for argument in call.args]
    return Test(json.dumps(arguments), json.dumps(value))


def _claim(test: ast.expr) -> tuple[ast.Call, Any]:
    """(the call, the value that it is said to have)."""
    match test:
        case ast.Call(func=ast.Attribute(attr="isclose"), args=[ast.Call() as call, other]):
            tolerances = [_value(keyword.value) for keyword in test.keywords]
            return call, _close_to(_value(other), min(tolerances, default=1e-9))
        case ast.Call():
            return test, True
        case ast.UnaryOp(op=ast.Not(), operand=ast.Call() as call):
            return call, False
        case ast.Compare(
            left=ast.Call(
                func=ast.Name(id="abs"),
                args=[ast.BinOp(left=ast.Call() as call, op=ast.Sub(), right=other)],
            ),
            ops=[ast.Lt() | ast.LtE()],
            comparators=[tolerance],
        ):
            return call, _close_to(_value(other), _value(tolerance))
        case ast.Compare(left=left, ops=[ast.Eq() | ast.Is()], comparators=[right]):
            call, value = (left, right) if isinstance(left, ast.Call) else (right, left)
            if isinstance(call, ast.Call):
                return call, _value(value)
    raise SkipRow("a test is not a plain assertion")


def _close_to(value: Any, tolerance: Any) -> float:
    """A float, since only that is compared with a tolerance."""
    low, high = TOLERANCES
    if not isinstance(tolerance, float) or not low <= tolerance <= high:
        raise SkipRow("a test has a tolerance of its own")
    return float(value)


def _value(node: ast.expr, inside_call: bool = False) -> Any:
    """A literal. Tuples are lists to JSON: right for a returned one, not for an argument."""
    match node:
        case ast.Constant(value=None | bool() | int() | float() | str() as value):
            return value
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            value = _value(operand, inside_call)
            if isinstance(value, int | float):
                return -value
        case ast.List(elts=items):
            return [_value(item, inside_call) for item in items]
        case ast.Tuple(elts=items) if not inside_call:
            return [_value(item) for item in items]
        case ast.Dict(keys=keys, values=values) if all(_is_text(key) for key in keys):
            found = [_value(value, inside_call) for value in values]
            return dict(zip([key.value for key in keys], found, strict=True))
        case ast.BinOp(left=left, op=op, right=right) if type(op) in _ARITHMETIC:
            both = [_value(side, inside_call) for side in (left, right)]
            if all(isinstance(side, int | float) and abs(side) < 1e18 for side in both):
                return _ARITHMETIC[type(op)](*both)
    raise SkipRow("a test has a value that JSON does not hold")


def _is_text(node: ast.expr | None) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, str)
