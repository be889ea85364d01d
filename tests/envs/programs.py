"""The attack and honest programs: files of `tests/programs`, each below a header.

The header is a comment of `key: value` lines up to a line `# ---`. All behind that line but the
file's last newline is the program, byte for byte. Of an attack the header says what it tries, which
verdicts are right, and the problem's limits; it prints HELD if all was refused, else BROKEN and a
list. Of an honest program it says what it reads (JSON; with a function, the arguments) and what it
must print or return, or nothing where a plain python3 shows that.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from envs.problem import Verdict

FOLDER = Path(__file__).parents[1] / "programs"
HELD = "HELD\n"


@dataclass(frozen=True)
class Program:
    """A program and what its header says."""

    program: str
    verdicts: frozenset[Verdict] = frozenset({Verdict.ACCEPTED})
    tests: int = 1  # how often an attack runs: more where one run could help the next
    fn_name: str | None = None
    padding: int = 0  # bytes of input after the first line
    hunts: bool = False  # the last test's expected output is a secret, so HELD is wrong there
    time_limit_s: float = 3.0
    input: str = ""
    output: str | None = None  # None: as a plain python3 prints


def tool(name: str) -> str:
    """Return the text of a program that tests use, of the folder `tools`."""
    return (FOLDER / "tools" / name).read_text()


def load(kind: str) -> dict[str, Program]:
    """Return name → program of all in a folder, `attack` or `honest`."""
    return dict(sorted(_read(file) for file in (FOLDER / kind).glob("*.py")))


def _read(file: Path) -> tuple[str, Program]:
    header, _, program = file.read_bytes().decode().partition("# ---\n")
    fields = dict(line.removeprefix("# ").split(": ", 1) for line in header.split("\n") if line)
    function, given, output = (fields.get(key) for key in ("function", "input", "output"))
    if function is None:
        given, output = (json.loads(text) if text else text for text in (given, output))
    return fields["name"], Program(
        program.removesuffix("\n"),
        frozenset(map(Verdict, fields.get("verdicts", "ACCEPTED").split())),
        int(fields.get("tests", 1)),
        function,
        int(fields.get("padding", "0").split()[0]),
        "hunts" in fields,
        float(fields.get("time_limit", "3.0").split()[0]),
        given or "",
        output,
    )


ATTACKS, HONEST = load("attack"), load("honest")
EVERYDAY = {name: one for name, one in HONEST.items() if one.output is None}
STATED = {name: one for name, one in HONEST.items() if one.output is not None}
