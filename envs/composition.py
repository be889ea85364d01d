"""Compose the YAML files of conf/ by Hydra. Each mistake is one line, which names the key."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

import hydra
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override
from hydra.errors import HydraException, MissingConfigException, OverrideParseException
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from envs.command_line import CONF, did_you_mean, leaves

CONFIG_PATH, CONFIG_DIR = "--config-path=", "--config-dir="


def composed(words: Sequence[str], folder: Path = CONF) -> DictConfig:
    """Return the configuration `config` of `folder` with overrides, unchecked.

    Among the words may be Hydra's flags `--config-path=FOLDER`, in place of `folder`, and
    `--config-dir=FOLDER`, which has further choices. Raises ValueError in one line.
    """
    overrides = [word for word in words if not word.startswith("--")]
    folders = [w.removeprefix(CONFIG_PATH) for w in words if w.startswith(CONFIG_PATH)]
    folder = Path(folders[-1] if folders else folder).resolve()
    more = [Path(w.removeprefix(CONFIG_DIR)).resolve() for w in words if w.startswith(CONFIG_DIR)]
    search = [f"hydra.searchpath=[{','.join(f'file://{path}' for path in more)}]"] if more else []
    if not (folder / "config.yaml").is_file():
        raise ValueError(f"{CONFIG_PATH}{folder}: there is no config.yaml in it")
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
            values = OmegaConf.to_container(composed(choices, folder))
            known = [name for name, _ in leaves(values)]  # type: ignore[arg-type]
            lists = "`python run.py --help` lists the keys"
            raise ValueError(f"unknown key {key!r}; {did_you_mean(key, known)}{lists}") from error
        if section := re.match(r"Error merging override ((\S+?)=.*)", str(error)):
            own = f"it has keys of its own, {section[2]}.KEY=VALUE"
            reason = cause.partition("\n")[0] if "could not be converted" in cause else own
            raise ValueError(f"{section[1]}: {reason}") from error
        raise ValueError(_on_one_line(error)) from error


def parse_overrides(words: Sequence[str]) -> list[Override]:
    """Return Hydra's overrides. Raises ValueError, which names the word."""
    parser, overrides = OverridesParser.create(), list[Override]()
    for word in words:
        try:
            overrides += parser.parse_overrides([word])
        except OverrideParseException as error:
            key, _, value = word.partition("=")
            quoted = f"""'{key}="{value or "VALUE"}"'"""
            raise ValueError(
                f"{word!r}: write key=value, and quote a value with blanks or signs, e.g. {quoted}"
            ) from error
    return overrides


def choices_of(group: str, folder: Path = CONF) -> list[str]:
    """The choices of a group of conf/; files that begin with _ are bases of others."""
    return sorted(file.stem for file in (folder / group).glob("[!_]*.yaml"))


def _no_such_choice(error: MissingConfigException, folder: Path) -> str:
    group, _, name = (error.missing_cfg_file or "").partition("/")
    options = [o for o in error.options or choices_of(group, folder) if not o.startswith("_")]
    near, more = did_you_mean(name, options), ""
    if group == "model":
        more = "; another model is model=local model.path=FOLDER, FILE.gguf or ORGANISATION/NAME"
    return f"{group}={name}: no such choice; {near}{group} is one of {', '.join(options)}{more}"


def _on_one_line(error: Exception) -> str:
    """Shorten a message of Hydra's, which has several lines and names the search path."""
    return " ".join(str(error).split("Config search path")[0].split()).removeprefix("In 'config': ")
