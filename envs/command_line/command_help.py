"""`--help` of every command: its text, then its keys with their sentences (from field_docs.py).

Also the quiet end of a command whose reader has gone, as in `... --help | head`.
"""

from __future__ import annotations

import os
import re
import select
import shutil
import sys
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from envs.command_line.field_docs import REQUIRED, field_docs, plain

HELP_WORDS = ("-h", "--help", "help")
UNREAD = 141  # exit status where nobody reads the output: 128 + SIGPIPE, as of other programs
_MAX_COLUMN = 36  # of the sentences


def wants_help(arguments: Sequence[str]) -> bool:
    """Whether a command line asks for the help."""
    return any(argument in HELP_WORDS for argument in arguments)


def print_help(schema: type, doc: str | None = None, more: Sequence[str] = ()) -> None:
    """Print a command's help: a text, the keys of `schema`, and more lines.

    doc: None is the docstring of the module that defines `schema`.
    """
    doc = sys.modules[schema.__module__].__doc__ if doc is None else doc
    lines = [*textwrap.dedent(doc or "").strip().splitlines()]
    if docs := list(argument_lines(schema)):
        lines += ["", "Keys, written key=value:", *docs]
    print("\n".join([*lines, *more]))


def take_no_arguments(doc: str | None, arguments: Sequence[str]) -> None:
    """End the process, after the help or an error, if a command without keys is given arguments."""
    if wants_help(arguments):
        print((doc or "").strip())
        raise SystemExit(0)
    if arguments:
        print(f"error: {arguments[0]!r}: this command takes no arguments", file=sys.stderr)
        raise SystemExit(2)


def argument_lines(schema: type, prefix: str = "") -> Iterator[str]:
    """Yield a line for each of a command's own keys, which need no value if there is none here."""
    for doc in field_docs(schema):
        default = {"null": "", REQUIRED: "... (required)"}.get(doc.default, doc.default)
        values = doc.values.removesuffix("|null")
        yield from entry(f"{prefix}{doc.key}={default}", f"{doc.sentence} [{values}]".strip())


def key_lines(
    schema: type, prefix: str = "", values: Mapping[str, Any] | None = None
) -> Iterator[str]:
    """Yield a line for each key of a configuration: key=default, sentence, allowed values.

    `values`: a configuration's own, in place of the defaults; keys that it lacks are left out.
    Lines are wrapped for a terminal; elsewhere each stays whole, so that grep finds all of it.
    """
    for doc in field_docs(schema):
        key, value = prefix + doc.key, (values or {}).get(doc.key)
        if values is not None and doc.key not in values:
            continue
        if doc.section and (
            isinstance(value, Mapping) or (values is None and doc.default != "null")
        ):
            yield from key_lines(doc.section, f"{key}.", value)
        else:
            default = doc.default if values is None else plain(value)
            default = default.replace("???", REQUIRED)
            yield from entry(f"{key}={default}", f"{doc.sentence} [{doc.values}]".strip())


def entry(head: str, text: str) -> Iterator[str]:
    """Yield the lines of one entry: its head, and its text in the second column."""
    line = f"  {head.ljust(_MAX_COLUMN - 4)}  {text}".rstrip()
    if not sys.stdout.isatty():
        yield line
        return
    width = max(60, shutil.get_terminal_size().columns)
    indent = " " * min(_MAX_COLUMN, width // 2)
    yield from textwrap.wrap(line, width, subsequent_indent=indent, break_on_hyphens=False)


def choice_lines(folder: Path) -> Iterator[str]:
    """Yield a line for each YAML file of a folder of choices, with the sentence that opens it."""
    for file in sorted(folder.glob("*.yaml")):
        yield from entry(file.stem, opening_sentence(file.read_text()))


def opening_sentence(text: str) -> str:
    """The first sentence of a YAML file's opening comment, without its command and directives."""
    comment = []
    for line in text.splitlines():
        if not line.startswith("#"):
            break
        words = line.lstrip("# ").strip()
        if not words.startswith(("@package", "python ")):
            comment.append(words)
    return re.split(r"(?<=\.)(?<!e\.g\.)\s|:$", " ".join(comment))[0]


@contextmanager
def quiet_when_unread() -> Iterator[None]:
    """End the process without a word once the reader of its output has gone.

    SIGPIPE stays ignored: by default it would also end a run at a lost connection.
    """
    try:
        try:
            yield
        finally:
            sys.stdout.flush()
    except BrokenPipeError:
        if not _is_unread():
            raise
        # else the interpreter would flush what is left, and complain
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise SystemExit(UNREAD) from None


def _is_unread() -> bool:
    """Whether stdout is a pipe that nobody reads any more: another pipe's error is a fault."""
    poll = select.poll()
    poll.register(sys.stdout.fileno(), 0)
    return any(event & (select.POLLERR | select.POLLHUP) for _, event in poll.poll(0))
