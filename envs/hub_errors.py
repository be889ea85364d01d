"""Explain a failed download from the Hugging Face hub in one line, with its cure.

The libraries wrap each other's errors, so the whole chain of causes is searched. Error classes are
recognised by name, which avoids importing `huggingface_hub` and its HTTP library.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

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
    kinds = {cls.__name__ for link in _chain(error) for cls in type(link).__mro__}
    page = f"https://huggingface.co/{'datasets/' if kind == 'dataset' else ''}{name}"
    if "GatedRepoError" in kinds:
        return (
            f"{key}={value}: {name} is gated; accept its licence at {page}, then run "
            "`hf auth login` or set HF_TOKEN"
        )
    if kinds & _UNKNOWN:
        commit = f" with a commit {revision}" if revision else ""
        return f"{key}={value}: the hub has no {kind} {name}{commit} that you may read; see {page}"
    if refusal := _refusal(error):
        return (
            f"{key}={value}: the hub refuses ({refusal}); check that you may read {page} and "
            "that HF_TOKEN or `hf auth whoami` names the right account"
        )
    if kinds & _UNREACHABLE:
        option = " --repo-type dataset" if kind == "dataset" else ""
        choice = "model=local " if kind == "model" else ""
        return (
            f"{key}={value}: the hub cannot be reached; on a machine with access, run "
            f"`hf download{option} {name} --local-dir FOLDER`, then set {choice}{key}=FOLDER here"
        )
    if kind == "dataset" and "FileNotFoundError" in kinds:
        return f"{key}={value}: no such file there"
    return None


def _refusal(error: BaseException) -> str | None:
    """Return the HTTP status of a refused request (401 or 403), else None."""
    for link in _chain(error):
        response = getattr(link, "response", None)
        if response is not None and getattr(response, "status_code", None) in (401, 403):
            return f"{response.status_code} {response.reason_phrase}"
    return None


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        yield error
        error = error.__cause__ or error.__context__
