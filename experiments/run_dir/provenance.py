"""What a run's numbers come from, and what of it has changed since: code, data, model, packages.

`digests.json` of a run folder has a digest of each file. Code is what the trainer and the functions
that the configuration names import, so an edited loss counts for the algorithms that use it.
conf/ is left out but for prompts: another value there is another configuration, and so another run.
"""

from __future__ import annotations

import hashlib
import importlib.util
import json
import platform
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

from envs.tasks.dataset import data_sets
from envs.tasks.prompts import template_file
from envs.tasks.rows import local_files
from experiments.config.command_line import without_secrets
from experiments.config.model_folder import GGUF
from experiments.config.schema import ModelConfig, RunConfig
from experiments.config.version import ROOT, packages, uncommitted_changes

DIGESTS = "digests.json"
MOST_BYTES = 1_000_000  # of a difference that is kept
ROOMS = ("algorithms", "analysis", "envs", "experiments")
BESIDE = ("envs/sandbox/inside/*.py", "conf/prompt/*.jinja")  # read, not imported
# They decide on what is shown and recorded, not on what is computed.
SHOWING = re.compile(
    r"experiments/run_dir/(activity|loggers|machine|progress|provenance|records)\.py"
    r"|experiments/config/(command_line|version)\.py"
    r"|experiments/rollout/(learning_signs)\.py"
    r"|envs/command_line/(command_help|field_docs|readable)\.py"
)
SHOWING_PACKAGES = {"matplotlib", "rich", "tabulate", "tensorboard", "trackio", "wandb"}
IMPORT = re.compile(
    r"^[ \t]*(?:from[ \t]+([\w.]+)[ \t]+import[ \t]*(\([^)]*\)|[^\n]*)|import[ \t]+([\w., \t]+))",
    re.MULTILINE,
)
ENDS = 1 << 20  # bytes at both ends of a file of weights that its digest reads
MODEL_FILES = ("*.safetensors", "*.bin", "*.json", "*.model", "*.jinja", "*.txt")

Facts = dict[str, Any]  # for run.json
Digests = dict[str, dict[str, str]]  # kind → file → digest


def digests(config: RunConfig) -> Digests:
    """Return a digest of each file that the run's numbers depend on, by kind: code, data, model.

    Files that cannot be read are left out: the run itself says so.
    """
    return {
        "code": dict(_code(_named_modules(config))),
        "data": dict(_data(config)),
        "model": dict(_model(config.model)),
    }


def changes(folder: Path, config: RunConfig) -> dict[str, list[str]]:
    """Return what has changed since a run: kind → files, or packages with both versions.

    Also what had changed when the run was resumed, and `unrecorded` where it has no digests.
    """
    try:
        before = json.loads((folder / DIGESTS).read_text())
        if not all(isinstance(files, dict) for files in before.values()):
            raise ValueError("no digests of files")
    except (OSError, ValueError, AttributeError):  # none, or a damaged file
        return {"unrecorded": []}
    info = json.loads((folder / "run.json").read_text())
    found = differences(before, digests(config))
    for resumed in info.get("resumed", []):
        for kind, names in resumed.get("changed", {}).items():
            found[kind] = sorted({*found.get(kind, []), *names})
    versions = info.get("packages", {}) | {"python": info.get("versions", {}).get("python")}
    if other := sorted(_other_versions(versions)):
        found["packages"] = other
    return found


def differences(before: Digests, now: Digests) -> dict[str, list[str]]:
    """Return kind → files whose digests differ; of data and models also those of one side only."""
    found = {}
    for kind, files in now.items():
        old = before.get(kind, {})
        # code that only one of the two imports: then so does a file that differs, or a resumed run
        # is distributed in another way
        names = old.keys() & files.keys() if kind == "code" else old.keys() | files.keys()
        if other := sorted(name for name in names if old.get(name) != files.get(name)):
            found[kind] = other
    return found


def _other_versions(before: Mapping[str, str]) -> Iterator[str]:
    now = {**packages(), "python": platform.python_version()}
    for name in before.keys() - SHOWING_PACKAGES:
        if before[name] and before[name] != now.get(name, "none"):
            yield f"{name} {before[name]} → {now.get(name, 'none')}"


def keep_provenance(folder: Path, config: RunConfig, resumed_at: int | None = None) -> Facts:
    """Write digests.json and code.diff to a run folder, and return their facts for run.json.

    Of a resumed run: what has changed, and a difference of its own if the code has. Nothing here
    ends a run.
    """
    try:
        now = digests(config)
        if resumed_at is None:
            (folder / DIGESTS).write_text(json.dumps(now, indent=1) + "\n")
            return {"diff": _keep_diff(folder / "code.diff")}
        changed = differences(json.loads((folder / DIGESTS).read_text()), now)
        name = f"code-after-{resumed_at}.diff"
        diff = _keep_diff(folder / name) if "code" in changed else None
        return {"changed": changed, "diff": diff}
    except Exception:  # such as a folder of an earlier version, or a full disk
        return {}


def _keep_diff(place: Path) -> Facts | None:
    """Write the code's difference to its commit; return its facts, or None if there is none.

    Beyond MOST_BYTES only its hash is kept.
    """
    text = without_secrets(uncommitted_changes().decode(errors="surrogateescape"))
    patch = text.encode(errors="surrogateescape")
    if not patch:
        return None
    kept = len(patch) <= MOST_BYTES
    if kept:
        place.write_bytes(patch)
    digest = hashlib.sha256(patch).hexdigest()
    return {"file": place.name if kept else None, "bytes": len(patch), "sha256": digest}


def _named_modules(config: RunConfig) -> tuple[str, ...]:
    """Return the modules that a run begins with: the trainer, and those of its configuration."""
    functions = [
        function
        for task in data_sets(config.task)
        for function in (task.make, task.rows, task.test_rows, task.split_of, task.environment)
    ]
    trainer = "experiments.trainer" if config.runtime.name == "sync" else "experiments.launch"
    names = (config.algo.core, *filter(None, functions))
    return (trainer, *(name.rpartition(".")[0] for name in names))


@cache
def _code(modules: tuple[str, ...]) -> tuple[tuple[str, str], ...]:
    """Return (name, digest) of the sources of modules, of their imports and of what they read."""
    folders = _folders(modules)
    sources, pending = dict[str, str](), list(modules)
    seen = set[str]()
    while pending:
        module = pending.pop()
        if module in seen:
            continue
        seen.add(module)
        if "." in module:  # importing a module runs its package's __init__.py
            pending.append(module.rpartition(".")[0])
        if file := _source(module, folders):
            text = file.read_text(errors="surrogateescape")
            sources[_name(file)] = _digest(text.encode(errors="surrogateescape"))
            pending += _imports(text)
    for pattern in BESIDE:
        sources |= {_name(file): _digest(file.read_bytes()) for file in ROOT.glob(pattern)}
    return tuple(sorted(pair for pair in sources.items() if not SHOWING.fullmatch(pair[0])))


def _folders(modules: Iterable[str]) -> tuple[Path, ...]:
    """Return where the user's own modules lie; installed packages are not followed."""
    folders = dict[Path, None]()
    for top in {module.partition(".")[0] for module in modules} - set(ROOMS):
        with suppress(ImportError, ValueError):
            spec = importlib.util.find_spec(top)
            if spec and spec.origin:
                file = Path(spec.origin)
                place = file.parents[1] if file.name == "__init__.py" else file.parent
                if not any(part.endswith("-packages") for part in place.parts):
                    folders[place] = None
    return tuple(folders)


def _source(module: str, folders: Iterable[Path]) -> Path | None:
    path = module.replace(".", "/")
    own = (ROOT,) if module.partition(".")[0] in ROOMS else ()
    for folder in (*own, *folders):
        for file in (folder / f"{path}.py", folder / path / "__init__.py"):
            if file.is_file():
                return file
    return None


def _imports(source: str) -> Iterator[str]:
    """Yield the modules that a source may import; a name of no module is no harm."""
    for base, names, plain in IMPORT.findall(source):
        if base:
            yield base
            yield from (f"{base}.{name}" for name in re.findall(r"\w+", names))
        else:
            yield from re.findall(r"[\w.]+", plain)


def _data(config: RunConfig) -> Iterator[tuple[str, str]]:
    parts = data_sets(config.task)
    tables = [part.quality for part in parts]
    templates = (config.task.prompt, config.task.feedback_prompt)
    files = [Path(path) for path in (*tables, *templates, *config.replay.files) if path]
    layouts = [
        layout
        for task in parts
        for layout in ((task.path, task.files), (task.test_path, task.test_files or task.files))
    ]
    for path, layout in layouts:
        if path and "://" not in path:
            with suppress(ValueError, OSError):
                found = local_files(path, "task.path", layout)
                files += [file for split in found.values() for file in split]
    for file in files:
        with suppress(OSError), template_file(file).open("rb") as content:
            yield str(file), hashlib.file_digest(content, "sha256").hexdigest()[:12]


def _model(model: ModelConfig) -> Iterator[tuple[str, str]]:
    """Yield the files of a local model, by size and both ends: whole ones may take minutes."""
    place = Path(model.path).expanduser()
    folder = place if place.exists() else ROOT / model.path
    files = [place] if place.suffix == GGUF else [f for p in MODEL_FILES for f in folder.glob(p)]
    for file in files:
        with suppress(OSError), file.open("rb") as content:
            size = file.stat().st_size
            head = content.read(ENDS)
            content.seek(max(len(head), size - ENDS))
            yield _name(file), _digest(b"%d:" % size + head + content.read())


def _digest(content: bytes) -> str:
    return hashlib.sha256(content.replace(b"\r\n", b"\n")).hexdigest()[:12]


def _name(file: Path) -> str:
    return file.relative_to(ROOT).as_posix() if file.is_relative_to(ROOT) else str(file)
