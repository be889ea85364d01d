"""HumanEval and MBPP: functions, with tests that are Python code.

HumanEval is openai/openai_humaneval (Chen et al. 2021): complete a function from its docstring.
MBPP is google-research-datasets/mbpp (Austin et al. 2021): a sentence, and asserts to satisfy. Both
its versions are read: `full` has text, test_setup_code and challenge_test_list; `sanitized` has
prompt and test_imports.

`assert f(1, [2]) == 3` becomes a call, and a condition on its result. The code is parsed and never
run, so expected results stay outside the sandbox. The condition is the assert's own: `==` on values
with their Python types, `is`, truth, or a distance. If one assert says more than a call test can
express, the problem is skipped, because the remaining tests would accept wrong programs.
"""

from __future__ import annotations

import ast
import math
import operator
import warnings
from collections.abc import Sequence
from typing import Any

from envs.judge.checkers import read_condition
from envs.problem import Problem, Test
from envs.sandbox.inside.framing import encode
from envs.tasks.parsers import Row, SkipRow, named_by_row

# The published splits, by task_id (Austin et al. 2021, section 2.1); 1 to 10 are for few-shot
# prompts.
MBPP_SPLITS = {"test": range(11, 511), "validation": range(511, 601), "train": range(601, 975)}
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
_NUMBERS = int | float | complex
_IGNORED = (ast.Pass, ast.Import, ast.ImportFrom)


def humaneval(row: Row, name: str) -> Problem:
    """Convert a row of HumanEval.

    Its prompt, a function without a body, is both statement and starter code.
    The right program is the prompt followed by the canonical solution. Raises SkipRow.
    """
    prompt, fn_name = row.get("prompt"), row.get("entry_point")
    if not isinstance(prompt, str) or not isinstance(fn_name, str):
        raise SkipRow("prompt or entry_point is not a text")
    tests = _check_tests(row)
    solution = row.get("canonical_solution")
    return Problem(
        name=named_by_row(name, row.get("task_id")),
        statement=prompt,
        samples=(),
        tests=tests,
        checker="assert",
        fn_name=fn_name,
        starter_code=prompt,
        source="HumanEval",
        solutions=(prompt + solution,) if isinstance(solution, str) else (),
    )


def _check_tests(row: Row) -> tuple[Test, ...]:
    """Return the tests of `check(candidate)`, the only function in the column `test`."""
    statements = [
        node for node in _parsed(row.get("test"), "test") if not isinstance(node, ast.Assign)
    ]
    match statements:
        case [ast.FunctionDef(name="check", args=ast.arguments(args=[parameter]), body=body)]:
            called, tests = asserted_tests(body)
            if called == parameter.arg:
                return tests
    raise SkipRow("test is not one function check(candidate) with asserts about it")


def mbpp_split(name: str) -> str | None:
    """Return the split of the problem `mbpp/TASK_ID`; None for the few-shot examples."""
    number = name.partition("/")[2]
    if not number.isdecimal():
        return None
    return next((split for split, ids in MBPP_SPLITS.items() if int(number) in ids), None)


def mbpp(row: Row, name: str) -> Problem:
    """Convert a row of MBPP; the statement shows the first assert, as usual. Raises SkipRow."""
    if row.get("test_setup_code"):
        raise SkipRow("the tests have set-up code")
    asserts = [*_texts(row, "test_list"), *_texts(row, "challenge_test_list")]
    fn_name, tests = asserted_tests(_parsed("\n".join(asserts), "test_list"))
    text = row.get("text") or row.get("prompt")
    code = row.get("code")
    if not isinstance(text, str):
        raise SkipRow("neither text nor prompt is there")
    statement = f"{text.strip()}\n\nFor example:\n```python\n{asserts[0].strip()}\n```"
    return Problem(
        name=named_by_row(name, row.get("task_id")),
        statement=statement,
        samples=tests[:1],
        tests=tests,
        checker="assert",
        fn_name=fn_name,
        source="MBPP",
        solutions=(code,) if isinstance(code, str) else (),
    )


def _texts(row: Row, column: str) -> list[str]:
    items = row.get(column) or []
    if not isinstance(items, list) or not all(isinstance(item, str) for item in items):
        raise SkipRow(f"{column} is not a list of texts")
    return items


# Asserts.


def _parsed(code: Any, what: str) -> list[ast.stmt]:
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
                call, condition = read_condition(test, ast.Call, _plain_call, literal)
                numbers = (condition.value, condition.absolute, condition.relative)
                within = condition.kind in ("within", "isclose")
                if within and not all(isinstance(number, int | float) for number in numbers):
                    raise SkipRow("an assert compares what is no number")
                functions.add(ast.unparse(call.func))
                arguments = [literal(argument) for argument in call.args]
                tests.append(Test(encode(arguments), condition.text()))
            case ast.Expr(value=ast.Constant()):
                continue
            case _ if not isinstance(statement, _IGNORED):
                raise SkipRow("the tests are more than asserts")
    if not tests:
        raise SkipRow("no tests")
    if len(functions) > 1:
        raise SkipRow("the asserts call more than one function")
    return functions.pop(), tuple(dict.fromkeys(tests))


def _plain_call(node: ast.expr) -> ast.Call:
    match node:
        case ast.Call(func=ast.Name(), keywords=[]):
            return node
    raise SkipRow("an assert is not one call compared with a literal")


def literal(node: ast.expr) -> Any:
    """Evaluate a literal, or arithmetic on literals up to MAX_SIZE. Raises SkipRow otherwise."""
    match node:
        case ast.Constant(value=bool() | int() | float() | complex() | str() | bytes() | None):
            return node.value
        case ast.Constant(value=value):
            raise SkipRow(f"an assert holds a {type(value).__name__}")
        case ast.List(elts=items):
            return [literal(item) for item in items]
        case ast.Tuple(elts=items):
            return tuple(literal(item) for item in items)
        case ast.Set(elts=items):
            return {_hashable(literal(item)) for item in items}
        case ast.Dict(keys=keys, values=values) if None not in keys:
            return {
                _hashable(literal(key)): literal(value)
                for key, value in zip(keys, values, strict=True)
                if key is not None
            }
        case ast.Call(func=ast.Name("set"), args=[], keywords=[]):
            return set()
        case ast.UnaryOp(op=ast.USub() | ast.UAdd(), operand=operand):
            value = literal(operand)
            if isinstance(value, int | float | complex):
                return -value if isinstance(node.op, ast.USub) else +value
        case ast.BinOp(left=left, op=op, right=right):
            return _arithmetic(type(op), literal(left), literal(right))
    raise SkipRow("an assert holds more than calls and literals")


def _hashable(value: Any) -> Any:
    try:
        hash(value)
    except TypeError:
        raise SkipRow("an assert holds a set or dict that Python refuses") from None
    return value


def _arithmetic(op: type[ast.operator], left: Any, right: Any) -> Any:
    """Compute with numbers, or concatenate or repeat sequences, up to MAX_SIZE.

    A NaN is refused: as it equals nothing, nothing could satisfy the assert.
    """
    numbers = isinstance(left, _NUMBERS) and isinstance(right, _NUMBERS)
    joined = op is ast.Add and type(left) is type(right) and isinstance(left, str | list | tuple)
    if op is ast.Mult and isinstance(left, int):
        left, right = right, left  # a repeated sequence first
    repeated = op is ast.Mult and isinstance(left, str | list | tuple) and isinstance(right, int)
    if op in _ARITHMETIC and (numbers or joined or repeated):
        times = right if isinstance(right, int) and (repeated or op is ast.Pow) else 1
        if _size(left) * abs(times) <= MAX_SIZE:
            try:
                value = _ARITHMETIC[op](left, right)
            except (ArithmeticError, TypeError, ValueError):
                value = math.nan
            if value == value:
                return value
    raise SkipRow("an assert holds arithmetic that is not followed")


def _size(value: Any) -> int:
    if isinstance(value, list | tuple | set):
        return 1 + sum(map(_size, value))
    if isinstance(value, dict):
        return 1 + sum(map(_size, value.keys())) + sum(map(_size, value.values()))
    return 1 + (value.bit_length() if isinstance(value, int) else len(str(value)))
