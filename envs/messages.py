"""Messages to people: text of others made safe to show, and the cure of a failed download.

Programs, their output, and the texts of data sets reach a terminal, a log or a page only through
`readable`: no character moves a cursor or reverses a line.
"""

from __future__ import annotations

import re
from typing import Any

MAX_ERROR_CHARS = 2000  # of a one-line error, which may quote a row

# C0 and C1 controls except line feed and tab, line and paragraph separators, bidirectional and
# invisible marks, and characters that no file (lone surrogates) or no XML can hold.
UNSAFE = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\xad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff"
    "\ud800-\udfff\ufff9-\ufffb\ufffe\uffff\U000e0000-\U000e007f]"
)


def readable(text: str, most: int | None = None) -> str:
    """Return the text with each unsafe character as its code point: ⟨U+202E⟩.

    Only the first `most` characters are read; the total is added if there are more.
    """
    rest = "" if most is None or len(text) <= most else f"… ({len(text)} characters)"
    return UNSAFE.sub(lambda match: f"⟨U+{ord(match.group()):04X}⟩", text[:most]) + rest


def shortened(text: str, most: int) -> str:
    """Return at most `most` characters of a text; of a longer one the middle is left out."""
    if len(text) <= most:
        return text
    end = (most - 1) // 2
    return f"{text[: most - 1 - end]}…{text[len(text) - end :]}"


_UNREACHABLE = {
    "OfflineModeIsEnabled",
    "LocalEntryNotFoundError",
    "ConnectError",
    "TimeoutException",
    "ConnectionError",
    "gaierror",
}
_UNKNOWN = {"RepositoryNotFoundError", "DatasetNotFoundError", "RevisionNotFoundError"}
_ID = re.compile(r"^(?:hf://datasets/)?([\w.-]+/[\w.-]+)(?:@(\w+))?")


def explain_hub_error(error: BaseException, key: str, value: str, kind: str) -> str | None:
    """Return the message for the user; None if the error has nothing to do with the hub.

    `key` and `value` are the configuration's; `kind` is "model" or "dataset".
    """
    match = _ID.match(value)
    name, revision = match.groups() if match else (value, None)
    links: list[BaseException] = []
    link: BaseException | None = error
    while link is not None and link not in links:
        links.append(link)
        link = link.__cause__ or link.__context__
    kinds = {cls.__name__ for link in links for cls in type(link).__mro__}
    responses = [getattr(link, "response", None) for link in links]
    refusals = [found for found in responses if getattr(found, "status_code", None) in (401, 403)]
    page = f"https://huggingface.co/{'datasets/' if kind == 'dataset' else ''}{name}"
    if "GatedRepoError" in kinds:
        return (
            f"{key}={value}: {name} is gated; accept its licence at {page}, then run "
            "`hf auth login` or set HF_TOKEN"
        )
    if kinds & _UNKNOWN:
        commit = f" with a commit {revision}" if revision else ""
        return f"{key}={value}: the hub has no {kind} {name}{commit} that you may read; see {page}"
    if refusals:
        refusal: Any = refusals[0]
        return (
            f"{key}={value}: the hub refuses ({refusal.status_code} {refusal.reason_phrase}); "
            f"check that you may read {page} and that HF_TOKEN or `hf auth whoami` names the right "
            "account"
        )
    if kinds & _UNREACHABLE:
        option = " --repo-type dataset" if kind == "dataset" else ""
        choice, bundled = ("model=local ", ", or model=nano") if kind == "model" else ("", "")
        return (
            f"{key}={value}: the hub cannot be reached; on a machine with access, run "
            f"`hf download{option} {name} --local-dir FOLDER`, then set {choice}{key}=FOLDER "
            f"here{bundled}"
        )
    if kind == "dataset" and "FileNotFoundError" in kinds:
        return f"{key}={value}: no such file there"
    return None
