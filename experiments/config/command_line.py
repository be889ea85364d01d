"""The command line of `run.py`: as run.json keeps it, and with its short forms spelt out.

Short forms are `model=FOLDER`, `from=FOLDER`, and of a sweep `jobs=N` and `again=…`.
"""

from __future__ import annotations

import os
import re
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Literal, cast, get_args

from experiments.config.model_folder import with_model_folder
from experiments.errors import UserError
from experiments.gpus import with_jobs

Again = Literal["never", "changed", "always"]  # which runs of an earlier sweep begin anew
AGAIN_VARIABLE = "SPO_BENCH_AGAIN"  # tells the processes of a sweep's jobs
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
    """Return a command line as Hydra takes it, with -m in front. Raises UserError."""
    flags = [word for word in typed if word in MULTIRUN]
    words = [*flags, *(word for word in typed if word not in flags)]
    return _without_again(with_jobs(with_model_folder(words)))


def _without_again(words: list[str]) -> list[str]:
    """Return a sweep's command line without `again=`, which its jobs find in the environment."""
    if not set(MULTIRUN) & set(words):
        return words
    given = [word for word in words if word.startswith("again=")]
    value = given[-1].removeprefix("again=") if given else "never"
    if value not in get_args(Again):
        raise UserError(f"again={value}; choose one of {', '.join(get_args(Again))}")
    os.environ[AGAIN_VARIABLE] = value
    return [word for word in words if word not in given]


def requested_again() -> Again:
    """Return the sweep's `again=`."""
    return cast(Again, os.environ.get(AGAIN_VARIABLE, "never"))


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
