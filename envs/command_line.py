"""Configuration and command lines: YAML of conf/ composed by Hydra, key=value arguments, `--help`.

Types, ranges (`PositiveInt`, `Annotated[float, Field(le=1)]`) and choices (`Literal`) are declared
only in the annotations; pydantic checks values. An error is one line: key, value, what is allowed.
"""

from __future__ import annotations

import functools
import importlib
import inspect
import json
import math
import os
import re
import sys
import textwrap
import typing
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any, TypeVar

import hydra
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override
from hydra.errors import HydraException, MissingConfigException, OverrideParseException
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException
from pydantic import TypeAdapter, ValidationError

T = TypeVar("T")

CONF = Path(__file__).resolve().parents[1] / "conf"
FIRST = ("spo", "ppo", "grpo")  # suggested before other names that are as close
UNREAD = 141  # exit status if nobody reads the output: 128 + SIGPIPE


def parse_values(schema: type[T], values: Mapping[str, Any], prefix: str = "") -> T:
    """Build `schema` from YAML values. Raises ValueError in one line.

    Types are strict, except that an int is accepted as a float. Floats must be finite. `prefix`:
    the key of the values, for messages.
    """
    _check_keys(schema, values, prefix)
    try:
        adapter: TypeAdapter[T] = _adapter(schema)  # type: ignore[arg-type]
        return adapter.validate_json(json.dumps(values), strict=True)
    except ValidationError as error:
        raise ValueError(_message(error.errors()[0], prefix)) from error


def parse_arguments(schema: type[T], argv: Sequence[str], doc: str | None = None) -> T:
    """Build `schema` from key=value arguments of a command line. Raises ValueError in one line.

    With --help among them: print `doc`, by default the docstring of the schema's module, and the
    keys, and end the process.
    """
    if wants_help(argv):
        print_help(schema, doc)
        raise SystemExit(0)
    keys = [field.name for field in fields(typing.cast(Any, schema))]
    for argument in argv:
        key, equals, value = argument.partition("=")
        if key not in keys or not equals:
            listed = f"write key=value, with a key of {', '.join(keys)}"
            raise ValueError(f"{argument!r}: {did_you_mean(key, keys)}{listed}")
        if not value:
            raise ValueError(f"{argument}: it must not be empty")
    try:
        adapter: TypeAdapter[T] = _adapter(schema)  # type: ignore[arg-type]
        options = adapter.validate_strings(dict(a.split("=", 1) for a in argv))
    except ValidationError as error:
        raise ValueError(_message(error.errors()[0], "")) from error
    for key in keys:
        _check_finite(key, getattr(options, key))
    return options


def did_you_mean(key: str, known: Sequence[str]) -> str:
    """Suggest known keys for an unknown one, as the beginning of a message; "" if none is close.

    A key is close if the last name is equal, if it abbreviates the last name (`lr` for
    `learning_rate`), by spelling (two swapped letters are one error), or if it begins the last
    name. Case is ignored.
    """
    from rapidfuzz import process
    from rapidfuzz.distance import OSA

    leaf = key.rpartition(".")[2].lower()
    names = {k: k.rpartition(".")[2].lower() for k in sorted(known, key=lambda k: k not in FIRST)}
    near = [
        k
        for k, name in names.items()
        if leaf in (name, "".join(word[:1] for word in name.split("_")))
    ]
    score = OSA.normalized_similarity
    best = process.extractOne(
        key, list(names), scorer=score, processor=str.lower, score_cutoff=0.66
    )
    begun = [k for k, name in names.items() if len(leaf) > 2 and name.startswith(leaf)]
    near = near or ([best[0]] if best else begun)
    return f"did you mean {' or '.join(map(repr, near[:2]))}? " if near else ""


@functools.cache
def _adapter(schema: Any) -> TypeAdapter[Any]:
    return TypeAdapter(schema)


def _check_keys(schema: type, values: Mapping[str, Any], prefix: str) -> None:
    """Reject what pydantic accepts: unknown keys, and infinite or NaN floats."""
    hints: dict[str, Any] = {}
    for name, hint in typing.get_type_hints(schema, include_extras=True).items():
        aliases = [getattr(item, "alias", None) for item in getattr(hint, "__metadata__", ())]
        hints |= {alias: hint for alias in aliases if alias} or {name: hint}
    fields_too = typing.get_type_hints(schema)
    if not isinstance(values, Mapping):
        raise ValueError(f"{prefix}={values!r}; it takes keys and their values: {', '.join(hints)}")
    for key, value in values.items():
        path = f"{prefix}.{key}" if prefix else key
        if key not in hints and key not in fields_too:
            near, listed = did_you_mean(key, list(hints)), ", ".join(hints)
            raise ValueError(f"unknown key {path!r}; {near}keys here: {listed}")
        hint = hints.get(key, fields_too.get(key))
        inner = next((h for h in (hint, *typing.get_args(hint)) if is_dataclass(h)), None)
        if isinstance(value, Mapping) and isinstance(inner, type):
            _check_keys(inner, value, path)
        _check_finite(path, value)


def _check_finite(path: str, value: Any) -> None:
    if isinstance(value, float) and not math.isfinite(value):
        raise ValueError(f"{path}={value}; it must be a finite number")


def _message(error: Mapping[str, Any], prefix: str) -> str:
    """Describe a pydantic error in one line."""
    names = [str(part) for part in error["loc"] if isinstance(part, str)]
    path = ".".join(filter(None, [prefix, *names]))
    kind, value, context = error["type"], error["input"], error.get("ctx", {})
    if kind == "missing":
        return f"{path}=... is missing"
    if kind == "value_error" and isinstance(value, Mapping):  # about several keys, which it names
        return str(context["error"])
    allowed = str(context.get("error", re.sub("^(Input|String)", "it", error["msg"])))
    if kind == "list_type":
        allowed = "it should be a list, such as [1,2]"
    if kind == "dataclass_type":
        allowed = f"it has keys of its own, {path}.KEY=VALUE"
    if kind == "string_type" and isinstance(value, bool | int | float):
        text = str(value).lower() if isinstance(value, bool) else value
        allowed += f"""; as a text it is '{path}="{text}"'"""
    return f"{path}={value!r}; {allowed}"


def wants_help(arguments: Sequence[str]) -> bool:
    """Whether a command line asks for the help."""
    return not {"-h", "--help", "help"}.isdisjoint(arguments)


def print_help(schema: type, doc: str | None = None) -> None:
    """Print a command's help: a text, and the fields of `schema` as its source has them.

    Those of base classes come first. Without `doc`, the text is the docstring of schema's module.
    """
    text = sys.modules[schema.__module__].__doc__ if doc is None else doc
    print(textwrap.dedent(text or "").strip())
    lines: list[str] = []
    for base in filter(is_dataclass, reversed(schema.__mro__)):
        source = textwrap.dedent(inspect.getsource(base)).partition("\n    def ")[0]
        lines += re.findall(r"^  (  (?:#|\w+:).*)$", source, re.MULTILINE)
    if lines:
        print("\nKeys, written key=value:", *lines, sep="\n")


def take_no_arguments(doc: str | None, arguments: Sequence[str]) -> None:
    """End the process, after the help or an error, if a command without keys is given arguments."""
    if wants_help(arguments):
        print((doc or "").strip())
        raise SystemExit(0)
    if arguments:
        print(f"error: {arguments[0]!r}: this command takes no arguments", file=sys.stderr)
        raise SystemExit(2)


def choice_lines(folder: Path) -> Iterator[str]:
    """Yield a line for each choice of a group of conf/: its name and its file's first sentence."""
    for file in sorted(folder.glob("[!_]*.yaml")):
        head = re.split(r"^(?!#)", file.read_text(), maxsplit=1, flags=re.MULTILINE)[0]
        opening = " ".join(re.findall(r"^# (?!@package|python )(.*)$", head, re.MULTILINE))
        sentence = re.split(r"(?<=\.)(?<!e\.g\.)\s|:$", opening)[0]
        yield f"  {file.stem:<24}  {sentence}".rstrip()


def yaml_lines(file: Path, values: Mapping[str, Any], prefix: str = "") -> Iterator[str]:
    """Yield `key=value  meaning` for each key of `values`, composed from a YAML file and its bases.

    The meanings are the comments of these files.
    """
    meanings: dict[str, str] = {}
    for each in _with_bases(file):
        meanings |= _yaml_comments(each.read_text())
    for key, value in leaves(values):
        text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
        yield f"  {f'{prefix}{key}={text}':<38}  {meanings.get(key, '')}".rstrip()


def _with_bases(file: Path) -> Iterator[Path]:
    """Yield the files in the defaults list of a YAML file of conf/, and the file itself."""
    stated: Any = OmegaConf.load(file)
    for base in stated.get("defaults", []):
        if isinstance(base, str) and base != "_self_":
            yield from _with_bases(file.parent / f"{base.partition('@')[0]}.yaml")
    yield file


def _yaml_comments(text: str) -> dict[str, str]:
    """Return dotted key → the comment beside it, or else the comment lines right above it."""
    path: list[str] = []
    above: list[str] = []
    found: dict[str, str] = {}
    for line in text.splitlines():
        if comment := re.match(r" *# ?(.*)", line):
            above.append(comment[1])
            continue
        if entry := re.match(r"( *)([a-z]\w*):(?:.*?\s# (.*))?", line):
            path[len(entry[1]) // 2 :] = [entry[2]]
            if meaning := entry[3] or " ".join(above):
                found[".".join(path)] = meaning
        above = []
    return found


def leaves(values: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield (dotted key, value) of a nested configuration."""
    for key, value in values.items():
        if isinstance(value, Mapping) and value:
            yield from leaves(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", list(value) if isinstance(value, tuple) else value


@contextmanager
def quiet_when_unread() -> Iterator[None]:
    """End the process without a word once the reader of its output has gone, as in `... | head`.

    SIGPIPE stays ignored: by default it would also end a run at a lost connection.
    """
    try:
        try:
            yield
        finally:
            sys.stdout.flush()
    except BrokenPipeError:
        # else the interpreter would flush what is left, and complain
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise SystemExit(UNREAD) from None


def load_function(name: str, key: str) -> Callable:
    """Import the function `name` (package.module.function), the value of configuration key `key`.

    Raises ValueError in one line if the module cannot be imported or has no such function.
    """
    module_name, _, attribute = name.rpartition(".")
    if not module_name:
        raise ValueError(f"{key}={name}: write package.module.function")
    try:
        module = importlib.import_module(module_name)
    except Exception as error:  # a user's module may raise anything
        reason = f"{type(error).__name__}: {' '.join(str(error).split())}"
        raise ValueError(f"{key}={name}: {module_name} cannot be imported: {reason}") from error
    function = getattr(module, attribute, None)
    if not callable(function):
        names = [known for known, value in vars(module).items() if callable(value)]
        near = did_you_mean(attribute, names)
        raise ValueError(f"{key}={name}: {near}{module_name} has no function {attribute}")
    return function


CONFIG_PATH, CONFIG_DIR = "--config-path=", "--config-dir="


def composed(words: Sequence[str], folder: Path = CONF) -> DictConfig:
    """Return the configuration `config` of `folder` with overrides, unchecked.

    Among the words may be Hydra's flags `--config-path=FOLDER`, in place of `folder`, and
    `--config-dir=FOLDER`, which has further choices. Raises ValueError in one line.
    """
    overrides = [_with_whole_numbers(word) for word in words if not word.startswith("--")]
    folders = [w.removeprefix(CONFIG_PATH) for w in words if w.startswith(CONFIG_PATH)]
    folder = Path(folders[-1] if folders else folder).resolve()
    more = [Path(w.removeprefix(CONFIG_DIR)).resolve() for w in words if w.startswith(CONFIG_DIR)]
    search = [f"hydra.searchpath=[{','.join(f'file://{path}' for path in more)}]"] if more else []
    if not (folder / "config.yaml").is_file():
        raise ValueError(f"{CONFIG_PATH}{folder}: there is no config.yaml in it")
    for path in more:
        if not path.is_dir():
            raise ValueError(f"{CONFIG_DIR}{path}: no such folder")
    try:
        with hydra.initialize_config_dir(str(folder), version_base="1.3"):
            return hydra.compose("config", overrides=[*search, *overrides])
    except MissingConfigException as error:
        raise ValueError(_no_such_choice(error, folder)) from error
    except OverrideParseException as error:
        parse_overrides(overrides)
        raise ValueError(_on_one_line(error)) from error
    except (HydraException, OmegaConfBaseException, ValueError) as error:
        cause = str(error.__cause__)
        if unknown := re.match(r"Could not override '([^']*)'", str(error)):
            inner = re.search(r"full_key: (\S+)", cause)
            key = inner[1] if inner and inner[1].startswith(f"{unknown[1]}.") else unknown[1]
            choices = [w for w in words if w[:2] == "--" or (folder / w.partition("=")[0]).is_dir()]
            values: Any = OmegaConf.to_container(composed(choices, folder))
            near = _choices_with(key, values, folder)
            near = near or did_you_mean(key, [*values, *(name for name, _ in leaves(values))])
            lists = "`python run.py --help` lists the keys"
            raise ValueError(f"unknown key {key!r}; {near}{lists}") from error
        if section := re.match(r"Error merging override ((\S+?)=.*)", str(error)):
            own = f"it has keys of its own, {section[2]}.KEY=VALUE"
            reason = cause.partition("\n")[0] if "could not be converted" in cause else own
            raise ValueError(f"{section[1]}: {reason}") from error
        raise ValueError(_on_one_line(error)) from error


def parse_overrides(words: Sequence[str]) -> list[Override]:
    """Return Hydra's overrides. Raises ValueError, which names the word."""
    parser, overrides = OverridesParser.create(), list[Override]()
    for word in map(_with_whole_numbers, words):
        try:
            overrides += parser.parse_overrides([word])
        except OverrideParseException as error:
            key, _, value = word.partition("=")
            quoted = f"""'{key}="{value or "VALUE"}"'"""
            raise ValueError(
                f"{word!r}: write key=value, and quote a value with blanks or signs, e.g. {quoted}"
            ) from error
    return overrides


def _with_whole_numbers(word: str) -> str:
    """Write steps=1e3 as steps=1000: a number with an exponent would be a float."""
    pattern = r"(?<=[=,[ ])(\d+)e\+?(\d)(?=[], ,]|$)"
    whole = re.sub(pattern, lambda number: number[1] + "0" * int(number[2]), word)
    return word if {*word} & {*"\"'"} else whole


def _choices_with(key: str, values: Mapping[str, Any], folder: Path) -> str:
    """Return the beginning of a message on a key of other choices of its group, or ""."""
    group, _, leaf = key.rpartition(".")
    names = choices_of(group, folder) if group in values else []
    files = {name: _with_bases(folder / group / f"{name}.yaml") for name in names}
    have = [name for name, some in files.items() if any(leaf in OmegaConf.load(f) for f in some)]
    first = ", ".join(sorted(have, key=lambda name: name not in FIRST)[:5])
    return f"it is a key of {group}={first}{', …' * (len(have) > 5)}; " if have else ""


def choices_of(group: str, folder: Path = CONF) -> list[str]:
    """The choices of a group of conf/; files that begin with _ are bases of others."""
    return sorted(file.stem for file in (folder / group).glob("[!_]*.yaml"))


def _no_such_choice(error: MissingConfigException, folder: Path) -> str:
    group, _, name = (error.missing_cfg_file or "").rpartition("/")
    options = [o for o in error.options or choices_of(group, folder) if not o.startswith("_")]
    near, more = did_you_mean(name, options), ""
    if group == "model":
        more = "; another model is model=local model.path=FOLDER, FILE.gguf or ORGANISATION/NAME"
    return f"{group}={name}: no such choice; {near}{group} is one of {', '.join(options)}{more}"


def _on_one_line(error: Exception) -> str:
    """Shorten a message of Hydra's, which has several lines and names the search path."""
    return " ".join(str(error).split("Config search path")[0].split()).removeprefix("In 'config': ")
