"""The budget of the house: code lines without docstrings, comments and blank lines.

To add, remove. Nothing raises these numbers but an issue that says so: 26,000 for the house,
1,000 for the questions of SPO's paper (the front, its studies, further objectives), and 1,000 for
credit inside a response (rollouts from prefixes and what learns from them).
"""

import ast
import io
import subprocess
import tokenize
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
CODE, TESTS, FILES = 28_000, 20_000, 160
DATA = ("tests/programs/",)  # attack and honest programs
NOT_CODE = {
    tokenize.COMMENT,
    tokenize.NL,
    tokenize.NEWLINE,
    tokenize.INDENT,
    tokenize.DEDENT,
    tokenize.ENDMARKER,
}
SCOPES = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)


def code_lines(source: str) -> int:
    """Return the number of lines that hold code."""
    docstrings: set[int] = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, SCOPES) and ast.get_docstring(node, clean=False) is not None:
            text = node.body[0]
            docstrings.update(range(text.lineno, text.end_lineno + 1))
    lines: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type not in NOT_CODE:
            lines.update(range(token.start[0], token.end[0] + 1))
    return len(lines - docstrings)


def sizes() -> dict[str, int]:
    """Return the code lines of each Python file of the tree."""
    listed = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "*.py"]
    names = subprocess.run(listed, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    files = [ROOT / name for name in names.split("\n") if name and not name.startswith(DATA)]
    return {
        file.relative_to(ROOT).as_posix(): code_lines(file.read_text(encoding="utf-8"))
        for file in files
        if file.exists()
    }


def test_the_house_keeps_its_budget():
    lines = sizes()
    product = {name: n for name, n in lines.items() if not name.startswith("tests/")}
    assert sum(product.values()) <= CODE
    assert sum(lines.values()) - sum(product.values()) <= TESTS
    assert len(product) <= FILES


def test_docstrings_comments_and_blank_lines_do_not_count():
    assert code_lines('"""Text."""\n\n# why\nx = (\n    1,\n)\n\ndef f():\n    """T."""\n') == 4
