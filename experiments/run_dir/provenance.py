"""What a run's numbers come from: commit, changes, sources, packages, command line, hardware.

`code.diff` of a run folder is the difference to the commit, and `digests.json` has a digest of each
source file. Tokens and passwords are masked.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import re
import shlex
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from functools import cache
from importlib.metadata import distributions
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
DIGESTS = "digests.json"
# files whose edit makes other code: conf/ stands in config.yaml, analysis/ computes nothing
SOURCES = "algorithms/*.py envs/**/*.py envs/**/*.yaml experiments/**/*.py conf/prompt/*.jinja"
DECISIVE = ("torch", "transformers", "tokenizers", "numpy", "peft", "vllm", "ray")
GIT_S = 10.0
SAMPLED = 2**20  # bytes of an input file that its digest is of, beside the size

COMMAND_VARIABLE = "SPO_BENCH_COMMAND"  # tells the processes that this one starts
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


@cache
def commit() -> str | None:
    """Return the code's commit, with a plus sign if the working tree differs from it."""
    if not _git("ls-files", "run.py"):  # no repository, or another project's around this folder
        return None
    described = _git("describe", "--always", "--dirty=+", "--abbrev=12", "--exclude=*")
    return described.decode().strip() or None


@cache
def packages() -> dict[str, str]:
    """Return the versions of all installed packages, like `pip freeze`."""
    return dict(sorted((found.metadata["Name"], found.version) for found in distributions()))


def keep_provenance(
    folder: Path, inputs: Mapping[str, Any], resumed_at: int | None = None
) -> dict[str, Any]:
    """Write code.diff and digests.json to a run folder; return facts for run.json.

    `inputs`: kind → files or folders that the run reads, by which `changes` names the kind. Of a
    resumed run: what has changed since it began, with a difference of its own.
    """
    name, changed = "code.diff", dict[str, list[str]]()
    if resumed_at is None:
        digests = {"code": _digests()} | {kind: _of_files(each) for kind, each in inputs.items()}
        (folder / DIGESTS).write_text(json.dumps(digests, indent=1) + "\n")
    else:
        name, changed = f"code-after-{resumed_at}.diff", changes(folder)
    patch = without_secrets(_uncommitted().decode(errors="surrogateescape"))
    content = patch.encode(errors="surrogateescape")
    facts: dict[str, Any] = {"diff": None}
    if content and (resumed_at is None or changed):
        (folder / name).write_bytes(content)
        facts["diff"] = {"file": name, "sha256": hashlib.sha256(content).hexdigest()}
    return facts if resumed_at is None else facts | {"changed": changed}


def changes(folder: Path) -> dict[str, list[str]]:
    """Return what differs from when a run was made: kind → files, "packages" → versions."""
    before = json.loads((folder / DIGESTS).read_text())
    # an input that is not on this machine says nothing
    now = {kind: _digests() if kind == "code" else _of_files(each) for kind, each in before.items()}
    found = {
        kind: sorted(
            file
            for file in (each.keys() | now[kind] if kind == "code" else now[kind])
            if each.get(file) != now[kind].get(file)
        )
        for kind, each in before.items()
    }
    old, new = json.loads((folder / "run.json").read_text())["packages"], packages()
    versions = [
        f"{name} {old.get(name)} → {new.get(name)}"
        for name in DECISIVE
        if old.get(name) != new.get(name)
    ]
    return {kind: names for kind, names in (found | {"packages": versions}).items() if names}


def note_command_line(argv: Sequence[str]) -> None:
    """Keep the command line as it was typed, for this process and those that it starts."""
    os.environ[COMMAND_VARIABLE] = command_text(["python", Path(argv[0]).name, *argv[1:]])


def command_line() -> str:
    """Return the command line that this process or the one that started it was given."""
    return os.environ.get(COMMAND_VARIABLE) or command_text(["python", *sys.orig_argv[1:]])


def command_text(words: Sequence[str]) -> str:
    """Return words as a shell takes them, with *** for the values of secret keys and for tokens."""
    pairs = [word.partition("=") for word in words]
    shown = [
        f"{key}={HIDDEN}" if equals and SECRET_KEY.search(key) else without_secrets(word)
        for word, (key, equals, _) in zip(words, pairs, strict=True)
    ]
    return shlex.join(shown)


def without_secrets(text: str) -> str:
    """Return a text with *** for what looks like a token, and for secrets of the environment."""
    for key, value in os.environ.items():
        if len(value) >= SHORTEST and SECRET_KEY.search(key):
            text = text.replace(value, HIDDEN)
    return SECRET_TEXT.sub(HIDDEN, text)


@cache
def _digests() -> dict[str, str]:
    """Return source file → digest, of the code that this process began with."""
    return {
        file.relative_to(ROOT).as_posix(): _digest(file)
        for pattern in SOURCES.split()
        for file in sorted(ROOT.glob(pattern))
    }


def _of_files(paths: Iterable[str | None]) -> dict[str, str]:
    """Return file → digest of local files, and of those in local folders."""
    places = [Path(path).expanduser() for path in paths if path]
    files = [file for place in places for file in (place, *place.rglob("*")) if file.is_file()]
    return {str(file.absolute()): _digest(file) for file in files}


def _digest(file: Path) -> str:
    """Return a digest of a file's size and of its first SAMPLED bytes."""
    with file.open("rb") as opened:
        content = b"%d %s" % (file.stat().st_size, opened.read(SAMPLED))
    return hashlib.sha256(content).hexdigest()[:12]


@cache
def _uncommitted() -> bytes:
    """Return the difference to the commit as a patch, new source files included."""
    if commit() is None:
        return b""
    new = _git("ls-files", "--others", "--exclude-standard", "-z", "*.py", "*.yaml", "*.jinja")
    patches = [
        _git("diff", "--no-index", "/dev/null", name) for name in new.decode().split("\0")[:-1]
    ]
    return b"".join([_git("diff", "HEAD", "--no-color", "--no-ext-diff"), *patches])


def _git(*arguments: str) -> bytes:
    """Return git's output in the repository; empty if there is none or git does not answer."""
    try:
        done = subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, timeout=GIT_S)
    except (OSError, subprocess.SubprocessError):
        return b""
    return done.stdout


def hardware() -> dict[str, Any]:
    """Describe the hardware that a run's times and last bits depend on; memory in GB (2^30 B)."""
    import torch

    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return {
        "machine": platform.machine(),
        "cpu": processor(),
        # Another instruction set changes the last digits of a loss, on the same CPU.
        "instructions": torch.backends.cpu.get_cpu_capability(),
        "cpus": os.cpu_count(),
        "memory_gb": round(memory / 2**30, 1),
        "gpu": torch.cuda.get_device_name(0) if torch.cuda.is_available() else None,
    }


def processor() -> str:
    """Return the CPU's name, family and model: a virtual machine's name may be just 'AMD EPYC'."""
    with suppress(OSError):
        first = Path("/proc/cpuinfo").read_text().split("\n\n")[0]
        facts = dict(re.findall(r"^(model name|cpu family|model)\s*: (.*)$", first, re.MULTILINE))
        family, model = facts.get("cpu family"), facts.get("model")
        return f"{facts['model name']}, family {family}, model {model}" if len(facts) == 3 else ""
    return platform.processor()
