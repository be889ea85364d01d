"""The command line of `run.py`: as run.json keeps it, and with its short forms spelt out.

A short form is `model=FOLDER`.
"""

from __future__ import annotations

import os
import re
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path

from experiments.config.model_folder import with_model_folder

MULTIRUN = ("-m", "--multirun")
COMMAND_VARIABLE = "SPO_BENCH_COMMAND"  # tells the processes of a sweep's jobs
HIDDEN = "***"
SECRET_KEY = re.compile(
    r"(^|[._-])(api_?key|access_?key|auth|credentials?|passw(or)?d|secret|token)$", re.IGNORECASE
)
# tokens of the hub, W&B, GitHub and others by their prefixes, and passwords in addresses
SECRET_TEXT = re.compile(
    r"\b(?:hf_|sk-|gh[opsu]_|github_pat_|wandb_v1_|xox[abp]-|AKIA)[\w-]{16,}"
    r"|(?<=://)[^/@\s:]*:[^/@\s]+(?=@)"
)
SHORTEST = 8  # characters of a variable's value that can only be the secret itself


def spelt_out(typed: Sequence[str]) -> list[str]:
    """Return a command line with -m in front and `model=FOLDER` in full. Raises UserError."""
    flags = [word for word in typed if word in MULTIRUN]
    return with_model_folder([*flags, *(word for word in typed if word not in flags)])


def note_command_line(argv: Sequence[str]) -> None:
    """Keep the command line as it was typed, for this process and those that it starts."""
    program = Path(argv[0]).name
    start = ["python", program] if program.endswith(".py") else [program]
    os.environ[COMMAND_VARIABLE] = command_text([*start, *argv[1:]])


def command_line() -> str:
    """Return the command line that this process or the one that started it was given."""
    return os.environ.get(COMMAND_VARIABLE) or command_text(["python", *sys.orig_argv[1:]])


def command_text(words: Sequence[str]) -> str:
    """Return words as a shell takes them, with *** for the values of secret keys and for tokens."""
    shown = []
    for word in words:
        key, equals, _ = word.partition("=")
        shown.append(
            f"{key}={HIDDEN}" if equals and SECRET_KEY.search(key) else without_secrets(word)
        )
    return shlex.join(shown)


def without_secrets(text: str) -> str:
    """Return a text with *** for what looks like a token, and for secrets of the environment."""
    for key, value in os.environ.items():
        if len(value) >= SHORTEST and SECRET_KEY.search(key):
            text = text.replace(value, HIDDEN)
    return SECRET_TEXT.sub(HIDDEN, text)
