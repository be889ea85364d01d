"""What users are meant to see of an error: one line, without a traceback."""

from __future__ import annotations

import errno

from envs.sandbox.base import SandboxError

FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}


class UserError(Exception):
    """Names the thing that is wrong and the way out."""


def one_line(error: BaseException) -> str:
    """The error in one line; a full disk is called that, whoever met it."""
    if is_full(error):
        where = f" at {error.filename}" if getattr(error, "filename", None) else ""
        return f"the disk is full{where}; free some of it, or choose another output_dir"
    text = (" ".join(str(error).split("\n")[0].split()))[:500]
    if isinstance(error, (UserError, SandboxError)):
        return text
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def is_expected(error: BaseException) -> bool:
    """Whether the line says all there is to say: the user can mend it, no code is at fault."""
    return isinstance(error, (UserError, SandboxError)) or is_full(error)


def is_full(error: BaseException) -> bool:
    """The libraries that write weights know no errno; it stands in their text."""
    if isinstance(error, OSError) and error.errno is not None:
        return error.errno in FULL
    return any(f"(os error {code})" in str(error) for code in FULL)
