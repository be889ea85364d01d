"""A draft becomes a problem: tests that catch the typical mistakes, and checked solutions.

Only programs that this package wrote itself are run here, in-process; programs of a model go
through `envs.judge.judge`.
"""

from __future__ import annotations

import io
import random
from collections import Counter
from collections.abc import Callable, Iterator
from functools import lru_cache
from types import CodeType

from envs.problem import Problem, Test
from envs.tasks.mini.drawing import Draft, tier_of

TIME_LIMIT_S = 1.0  # right programs take milliseconds; an endless loop costs the judge this much
_SOLUTIONS = 6
_SAMPLE_TRIES, _SAMPLE_LENGTH = 5, 48  # characters: prompts are paid for in every step
_TRIES = 30  # for one input or one distinct program


@lru_cache(maxsize=4096)
def _compiled(program: str) -> CodeType:
    return compile(program, "<program>", "exec")


def run_own(program: str, stdin: str) -> str:
    """What one of the package's own programs prints. Raises whatever the program raises."""
    reader, out = io.StringIO(stdin), io.StringIO()

    def read_line() -> str:
        line = reader.readline()
        if not line:
            raise EOFError
        return line.rstrip("\n")

    def write(*values: object, sep: str = " ") -> None:
        out.write(sep.join(map(str, values)) + "\n")

    names: dict[str, object] = {"input": read_line, "print": write, "open": lambda _: reader}
    exec(_compiled(program), names)
    return out.getvalue()


def passes(program: str, tests: tuple[Test, ...]) -> bool:
    """Whether the program prints every expected output, token by token, without an exception."""
    for test in tests:
        try:
            if run_own(program, test.input).split() != test.output.split():
                return False
        except Exception:
            return False
    return True


def _tests(draft: Draft, rng: random.Random, reference: str, sizes: tuple[int, ...]) -> list[Test]:
    """One test per size, as far as inputs are found that the reference answers with something."""
    tests: list[Test] = []
    for size in sizes:
        for _ in range(_TRIES):
            stdin = draft.stdin(rng, size)
            try:
                output = run_own(reference, stdin)
            except (IndexError, ValueError):
                continue  # e.g. the maximum of nothing: the task asks no such question
            if output.strip() and all(stdin != test.input for test in tests):
                tests.append(Test(stdin, output))
                break
    return tests


def sample(draft: Draft, rng: random.Random, reference: str) -> Test | None:
    """The small test that the statement shows, None where none was found."""
    for _ in range(_SAMPLE_TRIES):
        for test in _tests(draft, rng, reference, (draft.family.sample_size,)):
            if len(test.input) + len(test.output) <= _SAMPLE_LENGTH:
                return test
    return None


def _distinct(write: Callable[[], str], count: int) -> Iterator[str]:
    seen: set[str] = set()
    for _ in range(_TRIES):
        program = write()
        if program not in seen:
            seen.add(program)
            yield program
        if len(seen) == count:
            return


def build(draft: Draft, rng: random.Random) -> Problem | None:
    """The finished problem, named by its statement; None where this draft makes none.

    That is so where a typical mistake goes unnoticed by the tests (the composition does not
    depend on the part), where one constant answer would pass half of them, or where there are
    fewer than 6 tests.
    """
    reference = draft.program(random.Random(0))
    shown = sample(draft, rng, reference)
    tests = tuple(_tests(draft, rng, reference, draft.family.sizes))
    if shown is None or len(tests) < 6:
        return None
    answers = Counter(tuple(test.output.split()) for test in tests)
    if max(answers.values()) * 2 > len(tests):
        return None
    slots = range(len(draft.parts))
    wrong = [draft.program(rng, {slot: 0}) for slot in slots]
    wrong += [draft.program(rng, {slot: 1}) for slot in slots if len(draft.parts[slot].wrong) > 1]
    if any(passes(program, tests) for program in wrong[: len(slots)]):
        return None
    solutions = tuple(_distinct(lambda: draft.program(rng), _SOLUTIONS))
    for program in solutions:
        if not passes(program, (shown, *tests)):
            raise AssertionError(f"{draft.statement} A solution fails its own tests:\n{program}")
    return Problem(
        name=draft.statement,
        statement=draft.statement,
        samples=(shown,),
        tests=tests,
        time_limit_s=TIME_LIMIT_S,
        difficulty=tier_of(draft.parts),
        tags=(draft.family.name,),
        source="mini",
        solutions=solutions,
        incorrect_solutions=tuple(
            dict.fromkeys(program for program in wrong if not passes(program, tests))
        ),
    )
