"""Entry point: compose the configuration, check it, run it. `python run.py --help` says how.

All jobs of a command are composed and checked before the first one starts, so that a sweep does not
die of a typo half way, and what is wrong is said in one line.
"""

from __future__ import annotations

import difflib
import sys
from pathlib import Path

import hydra
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.errors import HydraException
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

CONF = Path(__file__).resolve().parent / "conf"
SHOW_ONLY = ("-h", "--help", "--hydra-help", "--version", "-c", "--cfg", "-i", "--info", "-sc")


def main() -> None:
    arguments = sys.argv[1:]
    if not any(a == flag or a.startswith(f"{flag}=") for a in arguments for flag in SHOW_ONLY):
        check(arguments)
    start()


def check(arguments: list[str]) -> None:
    """Compose and parse every job of the command line; end with one line at the first fault."""
    from experiments.config import parse
    from experiments.errors import UserError

    overrides = [argument for argument in arguments if not argument.startswith("-")]
    sweep = any(argument in ("-m", "--multirun") for argument in arguments)
    try:
        with hydra.initialize_config_dir(str(CONF), version_base="1.3"):
            configs = [
                parse(hydra.compose("config", overrides=job)) for job in jobs(overrides, sweep)
            ]
        for folder in {config.output_dir for config in configs}:
            Path(folder).mkdir(parents=True, exist_ok=True)
    except (HydraException, OmegaConfBaseException, UserError) as error:
        fail(one_line(error))
    except OSError as error:
        fail(f"output_dir={folder}: {error.strerror}; choose a folder that you may write to")


def jobs(overrides: list[str], sweep: bool) -> list[list[str]]:
    """The overrides of each job: one, or a sweep's combinations."""
    if not sweep:
        return [overrides]
    from hydra._internal.core_plugins.basic_sweeper import BasicSweeper

    parsed = OverridesParser.create().parse_overrides(overrides)
    return [job for batch in BasicSweeper.split_arguments(parsed, None) for job in batch]


def one_line(error: Exception) -> str:
    """Hydra spreads its messages over lines and names its own search path."""
    text = " ".join(str(error).split("Config search path")[0].split())
    if "is not in struct" in text or text.startswith("Could not override"):
        key = text.split("'")[1]
        near = difflib.get_close_matches(key, known_keys(), n=1)
        meant = f"did you mean {near[0]!r}? " if near else ""
        return f"unknown key {key!r}; {meant}`python run.py --help` lists the keys"
    return text.removeprefix("In 'config': ")


def known_keys() -> list[str]:
    """The dotted keys of the default configuration."""
    with hydra.initialize_config_dir(str(CONF), version_base="1.3"):
        composed = OmegaConf.to_container(hydra.compose("config"))
    groups = {key: value for key, value in composed.items() if isinstance(value, dict)}
    return [*composed, *(f"{group}.{key}" for group, values in groups.items() for key in values)]


def fail(message: str) -> None:
    print(f"error: {message}", file=sys.stderr)
    raise SystemExit(2)


@hydra.main(config_path="conf", config_name="config", version_base="1.3")
def start(composed: DictConfig) -> None:
    from analysis.table import before_after_table
    from envs.sandbox.base import SandboxError
    from experiments.config import parse
    from experiments.errors import UserError
    from experiments.trainer import train

    try:
        folder, status = train(parse(composed))
    except (UserError, SandboxError) as error:
        fail(str(error).split("\n")[0])
    if status == "interrupted":
        print(f"interrupted; what was done is in the run folder\nrun folder: {folder}")
        raise SystemExit(130)
    from rich.console import Console

    Console().print(before_after_table(folder))
    print(f"run folder: {folder}")


if __name__ == "__main__":
    main()
