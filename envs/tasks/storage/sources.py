"""Find the rows of a data set: in a file, in a folder, or on the Hugging Face hub.

Each source has an identity, which tells whether its rows were converted before, and can be read
from any row on, so an interrupted conversion resumes where it stopped.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from envs.cache_folder import cache_root, replace_file
from envs.hub_errors import explain_hub_error
from envs.tasks.config import FilesConfig
from envs.tasks.parsers.field_parsers import Row
from envs.tasks.storage.rows import (
    ARROW_ROWS,
    Converter,
    place_in_file,
    read_json,
    read_rows,
)

_FOLDER_PATTERNS = {"train": "train*", "validation": "valid*", "test": "test*", "choose": "choose*"}
_BUILDERS = {".parquet": "parquet", ".arrow": "arrow", ".jsonl": "json", ".json": "json"}
_PINNED = re.compile(r"hf://datasets/(?P<name>[^@]+)@(?P<commit>[0-9a-f]{40})")


@dataclass(frozen=True)
class Source:
    """A stream of rows with its converter."""

    converter: Converter
    label: str  # for progress and errors
    stem: str  # distinguishes the sources of a task in problem names
    identity: str  # changes whenever a row may differ
    read: Callable[[int], Iterator[Row | None]]  # rows from a number on; None: a broken row
    rows: Callable[[], int | None] = lambda: None  # counts them, if that is cheap
    place: Callable[[int], str] = "row {}".format  # of a row, by its number from 1
    others: tuple[Source, ...] = ()  # the data set's other files


def find_sources(
    converter: Converter, path: str, key: str, files: FilesConfig
) -> dict[str, list[Source]]:
    """Return the sources of each split; a single file is under "all", to be divided later.

    `files` is the data set's layout. A folder that does not match it is searched for train*,
    valid*, choose* and test*. `key` is the configuration key of `path`. Raises ValueError or
    OSError in one line.
    """
    if "://" in path:
        return _remote_sources(converter, path, key, _layout(files))
    found = local_files(path, key, files)
    return {
        split: [_file_source(converter, file) for file in each] for split, each in found.items()
    }


def of_one_data_set(*found: dict[str, list[Source]]) -> list[dict[str, list[Source]]]:
    """Return what `find_sources` found, of which each source knows all the others."""
    every = [source for splits in found for sources in splits.values() for source in sources]
    return [
        {
            split: [
                replace(source, others=tuple(other for other in every if other is not source))
                for source in sources
            ]
            for split, sources in splits.items()
        }
        for splits in found
    ]


def _layout(files: FilesConfig) -> dict[str, str]:
    return {split: pattern for split, pattern in asdict(files).items() if pattern}


def local_files(path: str, key: str, files: FilesConfig) -> dict[str, list[Path]]:
    """Return the files of each split; a single file is under "all". Raises as `find_sources`."""
    layout = _layout(files)
    folder = Path(path).expanduser()
    if not folder.exists():
        place = "" if folder.is_absolute() else f"; looked for {folder.absolute()}"
        raise ValueError(f"{key}={path}: no such file or folder{place}")
    if not os.access(folder, os.R_OK | (os.X_OK if folder.is_dir() else 0)):
        raise ValueError(f"{key}={path}: no permission to read it")
    if folder.is_file():
        if folder.suffix not in _BUILDERS:
            kinds = ", ".join(_BUILDERS)
            raise ValueError(f"{key}={path}: not a file of rows; it must end in {kinds}")
        return {"all": [folder]}
    if any(True for pattern in layout.values() for _ in folder.glob(pattern)):
        matches = {split: folder.glob(pattern) for split, pattern in layout.items()}
    else:
        matches = {split: folder.rglob(pattern) for split, pattern in _FOLDER_PATTERNS.items()}
    found = {
        split: [
            file
            for file in sorted(matches.get(split, ()))
            if file.is_file() and file.suffix in _BUILDERS
        ]
        for split in _FOLDER_PATTERNS
    }
    if not any(found.values()):
        kinds = ", ".join(_BUILDERS)
        raise ValueError(
            f"{key}={path}: no train*, valid*, choose* or test* file of kind {kinds} in it"
        )
    return found


def _file_source(converter: Converter, file: Path) -> Source:
    digest, lines = content_digest(file)
    return Source(
        converter,
        label=str(file),
        stem=file.stem,
        identity=digest,
        read=partial(read_rows, file),
        rows=partial(_count_local_rows, file, lines),
        place=partial(place_in_file, file),
    )


def _count_local_rows(file: Path, lines: int) -> int | None:
    import pyarrow.parquet

    if file.suffix == ".jsonl":
        return lines
    try:
        return pyarrow.parquet.read_metadata(file).num_rows if file.suffix == ".parquet" else None
    except (ValueError, OSError):  # reading the rows says it
        return None


def content_digest(file: Path) -> tuple[str, int]:
    """Return (digest of the file's bytes, number of lines), cached by path, size and time."""
    status = file.stat()
    path = str(file.resolve())
    key = [path, status.st_size, status.st_mtime_ns]
    cache = cache_root() / "digests" / f"{hashlib.sha256(path.encode()).hexdigest()[:16]}.json"
    try:
        cached = json.loads(cache.read_text())
        if cached["file"] == key:
            return cached["digest"], cached["lines"]
    except (OSError, ValueError, KeyError):
        pass
    digest, lines = hashlib.sha256(), 0
    with file.open("rb") as content:
        while block := content.read(1 << 20):
            digest.update(block)
            lines += block.count(b"\n")
    cache.parent.mkdir(parents=True, exist_ok=True)
    replace_file(cache, json.dumps({"file": key, "digest": digest.hexdigest(), "lines": lines}))
    return digest.hexdigest(), lines


def _remote_sources(
    converter: Converter, path: str, key: str, layout: dict[str, str]
) -> dict[str, list[Source]]:
    """Sources at hf://datasets/ID@COMMIT, or at file://FOLDER with the same files."""
    base = path.rstrip("/")
    if base.startswith("hf://") and not _PINNED.fullmatch(base):
        raise ValueError(
            f"{key}={path}: name the commit, hf://datasets/ID@COMMIT with its 40 hex digits; what "
            f"a branch holds may change between two runs{_newest_commit(base)}"
        )
    if not layout:
        files = key.replace("path", "files")
        raise ValueError(f"{key}={path}: say which files hold its splits, {files}.train=PATTERN")
    return {
        split: [_remote_source(converter, split, base, layout[split], key)]
        if split in layout
        else []
        for split in _FOLDER_PATTERNS
    }


def _newest_commit(base: str) -> str:
    """Return the end of a message that names a data set's newest commit; "" without the hub."""
    import huggingface_hub

    name = base.removeprefix("hf://datasets/").partition("@")[0]
    try:
        commit = huggingface_hub.HfApi().dataset_info(name, timeout=10).sha
    except Exception:  # the hub's dozens of types: offline, unknown, gated
        return ""
    return f". The newest one now is hf://datasets/{name}@{commit}"


def _remote_source(converter: Converter, split: str, base: str, pattern: str, key: str) -> Source:
    url = f"{base}/{pattern}"
    if Path(pattern).suffix not in _BUILDERS:
        kinds = ", ".join(_BUILDERS)
        files = key.replace("path", "files")
        raise ValueError(f"{files}.{split}={pattern}: it must end in {kinds}")

    def read(first: int) -> Iterator[Row | None]:
        try:
            yield from _stream(base, url, first)
        except Exception as error:
            # `datasets` raises dozens of types
            message = explain_hub_error(error, key, base, "dataset")
            raise ValueError(message or f"{key}={base}: {_first_line(error)}") from error

    identity = url
    if url.startswith("file://"):
        local = Path(base.removeprefix("file://"))
        contents = [(file.name, content_digest(file)[0]) for file in sorted(local.glob(pattern))]
        identity = repr(contents)
    return Source(converter, url, split, identity, read, partial(_count_rows, url))


def _stream(base: str, url: str, first: int) -> Iterator[Row | None]:
    """Yield the rows of all files that match a URL, from number `first` on.

    Each file is a stream of its own, because the files of one split may have different columns,
    and because a resumed conversion need not read whole Parquet files again.
    """
    import datasets
    import huggingface_hub

    datasets.disable_progress_bars()
    if match := _PINNED.match(base):
        # first, since the hub reports a data set without read access only as empty
        huggingface_hub.HfApi().dataset_info(match["name"], revision=match["commit"])
    system, files = remote_files(url)
    for file in files:
        if first and file.endswith(".parquet") and (rows := _parquet_rows(system, file)) <= first:
            first -= rows
            continue
        rows = 0
        for row in _stream_file(system, file):
            if rows >= first:
                yield row
            rows += 1
        first = max(0, first - rows)


def _stream_file(system: Any, file: str) -> Iterator[Row | None]:
    import datasets

    kind = Path(file).suffix
    if kind == ".json":  # may be one array, which `datasets` would read into memory
        with system.open(file, "r", encoding="utf-8", errors="surrogateescape") as text:
            yield from read_json(text, 0)
        return
    options = {"batch_size": ARROW_ROWS} if kind == ".parquet" else {}
    yield from datasets.load_dataset(
        _BUILDERS[kind],
        data_files=system.unstrip_protocol(file),
        split="train",
        streaming=True,
        **options,
    )


def remote_files(url: str) -> tuple[Any, list[str]]:
    """Return (file system, the files that match a URL). Raises FileNotFoundError if none does."""
    import fsspec

    system, path = fsspec.core.url_to_fs(url)
    files = sorted(system.glob(path))
    if not files:
        raise FileNotFoundError(url)
    return system, files


def _count_rows(url: str) -> int | None:
    """Return how many rows a URL's Parquet files have, for the progress bar; None if unknown."""
    if not url.endswith(".parquet"):
        return None
    try:
        system, files = remote_files(url)
        return sum(_parquet_rows(system, file) for file in files)
    except Exception:  # whatever it is, reading the rows says it with its cure
        return None


def _parquet_rows(system: Any, file: str) -> int:
    """Return a Parquet file's number of rows, which stands at its end."""
    import pyarrow.parquet

    with system.open(file, "rb") as content:
        return pyarrow.parquet.ParquetFile(content).metadata.num_rows


def _first_line(error: Exception) -> str:
    return f"{type(error).__name__}: {str(error).strip().partition(chr(10))[0]}"
