"""The tables of docs/reference/errors.md: mistakes, commands, exit statuses, lines."""

import re
from dataclasses import dataclass
from pathlib import Path

PAGE = Path(__file__).resolve().parents[1] / "docs" / "reference" / "errors.md"
LATER = "During a run"  # section of rows that need a whole run
CODE = re.compile(r"(`+)(.+)\1")


@dataclass(frozen=True)
class Row:
    section: str
    mistake: str
    command: str
    status: str
    line: str  # … stands for any text

    def fits(self, text: str) -> bool:
        """Whether a text is the row's line."""
        parts = map(re.escape, self.line.split("…"))
        return re.fullmatch(".*".join(parts), text) is not None


def rows():
    """Yield the rows of all tables that have a command."""
    section = ""
    for line in PAGE.read_text("utf-8").splitlines():
        if line.startswith("## "):
            section = line.removeprefix("## ")
        cells = line.strip("| ").split(" | ")
        if len(cells) == 4 and (command := CODE.fullmatch(cells[1])):
            printed = CODE.fullmatch(cells[3])
            assert printed, line
            yield Row(section, cells[0], command[2].strip(), cells[2], printed[2].strip())


def row_of(mistake: str) -> Row:
    """The row of a mistake that needs a whole run."""
    (found,) = (row for row in rows() if row.section == LATER and row.mistake == mistake)
    return found
