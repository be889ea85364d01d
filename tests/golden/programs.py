"""The attack and honest programs of the tests, as they are recorded."""

from __future__ import annotations

from collections.abc import Iterator


def attack_programs() -> Iterator[tuple[str, list[object]]]:
    """Yield each attack's name, and its program, right verdicts and number of tests."""
    from tests.envs.programs import ATTACKS

    for name, attack in sorted(ATTACKS.items()):
        yield name, [attack.program, sorted(attack.verdicts), attack.tests]


def honest_programs() -> Iterator[tuple[str, list[object]]]:
    """Yield each honest program's name, and its text, input, output and function."""
    from tests.envs.programs import STATED

    for name, honest in sorted(STATED.items()):
        yield name, [honest.program, honest.input, honest.output, honest.fn_name]
