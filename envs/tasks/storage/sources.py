"""Where the rows of a public data set come from: a file, a folder, or the Hugging Face hub.

Each source says what identifies its content, so that rows which have been converted once are known
again, and can be read from any row on, so that an interrupted conversion goes on where it stopped.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path

from envs.cache_folder import replace_file, root
from envs.hub_errors import explain_hub_error
from envs.tasks.config import FilesConfig
from envs.tasks.loaders.field_parsers import Row
from envs.tasks.storage.rows import Converter, read_rows

_FOLDER = {"train": "train*", "validation": "valid*", "test": "test*"}
_BUILDERS = {".parquet": "parquet", ".arrow": "arrow", ".jsonl": "json", ".json": "json"}
_PINNED = re.compile(r"hf://datasets/(?P<name>[^@]+)@(?P<commit>[0-9a-f]{40})")


@dataclass(frozen=True)
class Source:
    """One stream of rows, and how one becomes a problem."""

    converter: Converter
    label: str  # for progress and errors
    stem: str  # tells the sources of a task apart, in the names of their problems
    identity: str  # another string wherever a row may differ
    read: Callable[[int], Iterator[Row | None]]  # the rows from a number on; None: not a row
    rows: int | None = None  # how many, where that is known


def find(converter: Converter, path: str, key: str, files: FilesConfig) -> dict[str, list[Source]]:
    """The sources of each split; under "all" where `path` is one file, whose splits are ours.

    `files` is the data set's layout; a folder where it finds nothing is searched for train*, valid*
    and test*. `key` is the configuration's name for `path`. Raises ValueError and OSError, in one
    line.
    """
    layout = {split: pattern for split, pattern in asdict(files).items() if pattern}
    if "://" in path:
        return _on_hub(converter, path, key, layout)
    given = Path(path).expanduser()
    if not given.exists():
        raise ValueError(f"{key}={path}: no such file or folder")
    if given.is_file():
        return {"all": [_file(converter, given)]}
    if any(True for pattern in layout.values() for _ in given.glob(pattern)):
        named = {split: given.glob(layout[split]) if split in layout else () for split in _FOLDER}
    else:
        named = {split: given.rglob(pattern) for split, pattern in _FOLDER.items()}
    found = {
        split: [_file(converter, file) for file in sorted(files) if _holds_rows(file)]
        for split, files in named.items()
    }
    if not any(found.values()):
        kinds = ", ".join(_BUILDERS)
        raise ValueError(f"{key}={path}: no train*, valid* or test* file of kind {kinds} in it")
    return found


def _holds_rows(file: Path) -> bool:
    return file.is_file() and file.suffix in _BUILDERS


def _file(converter: Converter, file: Path) -> Source:
    if file.suffix not in _BUILDERS:
        raise ValueError(f"{file}: not a file of rows; it must end in {', '.join(_BUILDERS)}")
    digest, lines = _content(file)

    rows = lines if file.suffix in (".jsonl", ".json") else None
    return Source(converter, str(file), file.stem, digest, partial(read_rows, file), rows)


def _content(file: Path) -> tuple[str, int]:
    """(digest of the file's bytes, its lines), remembered as long as its size and time stay."""
    facts = file.stat()
    known = [str(file.resolve()), facts.st_size, facts.st_mtime_ns]
    note = root() / "digests" / f"{hashlib.sha256(known[0].encode()).hexdigest()[:16]}.json"
    try:
        held = json.loads(note.read_text())
        if held["file"] == known:
            return held["digest"], held["lines"]
    except (OSError, ValueError, KeyError):
        pass
    digest, lines = hashlib.sha256(), 0
    with file.open("rb") as content:
        while block := content.read(1 << 20):
            digest.update(block)
            lines += block.count(b"\n")
    note.parent.mkdir(parents=True, exist_ok=True)
    replace_file(note, json.dumps({"file": known, "digest": digest.hexdigest(), "lines": lines}))
    return digest.hexdigest(), lines


def _on_hub(
    converter: Converter, path: str, key: str, layout: dict[str, str]
) -> dict[str, list[Source]]:
    """hf://datasets/ID@COMMIT, or file://FOLDER with the same files in it."""
    base = path.rstrip("/")
    if base.startswith("hf://") and not _PINNED.fullmatch(base):
        raise ValueError(
            f"{key}={path}: name the commit, hf://datasets/ID@COMMIT with its 40 hex digits; what "
            "a branch holds may change between two runs"
        )
    if not layout:
        files = key.replace("path", "files")
        raise ValueError(f"{key}={path}: say which files hold its splits, {files}.train=PATTERN")
    return {
        split: [_stream(converter, split, base, layout[split], key)] if split in layout else []
        for split in _FOLDER
    }


def _stream(converter: Converter, split: str, base: str, pattern: str, key: str) -> Source:
    url = f"{base}/{pattern}"
    builder = _BUILDERS.get(Path(pattern).suffix)
    if builder is None:
        kinds = ", ".join(_BUILDERS)
        files = key.replace("path", "files")
        raise ValueError(f"{files}.{split}={pattern}: it must end in {kinds}")

    def read(first: int) -> Iterator[Row]:
        import datasets
        import huggingface_hub

        datasets.disable_progress_bars()
        try:
            if match := _PINNED.match(base):
                # Asked first, since `datasets` only says of what it may not read that it is empty.
                huggingface_hub.HfApi().dataset_info(match["name"], revision=match["commit"])
            stream = datasets.load_dataset(builder, data_files=url, split="train", streaming=True)
            yield from stream.skip(first)
        except Exception as error:
            # `datasets` raises dozens of kinds; the ones with a known cure are told apart there
            told = (
                explain_hub_error(error, key, base, "dataset")
                or f"{key}={base}: {_first_line(error)}"
            )
            raise ValueError(told) from error

    identity = url
    if url.startswith("file://"):
        pattern = Path(url.removeprefix("file://"))
        files = sorted(pattern.parent.glob(pattern.name))
        identity = repr([(file.name, _content(file)[0]) for file in files])
    return Source(converter, url, split, identity, read)


def _first_line(error: Exception) -> str:
    return f"{type(error).__name__}: {str(error).strip().partition(chr(10))[0]}"
