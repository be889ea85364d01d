"""What `run.py` prints instead of running: the text of `--help` and of `--cfg job`.

Nothing heavy is imported.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, fields
from typing import Any

from omegaconf import DictConfig, OmegaConf

from envs.command_line import choice_lines, key_lines, wants_help
from envs.import_by_name import load_function
from experiments.config.class_defaults import CONF
from experiments.config.composition import (
    compose,
    counted,
    errors_on_one_line,
    is_sweep,
    jobs_of,
)
from experiments.config.dependencies import noting_missing_packages
from experiments.config.resume import named_folder, resumed_config
from experiments.config.schema import RunConfig, parse, plain_values
from experiments.errors import UserError

USAGE = """\
SPO-Bench: train a language model to write contest programs, with one of several algorithms.

python run.py [choice=NAME | key=VALUE]...
python run.py -m algo=spo,ppo,grpo seed=0,1,2      a sweep: every combination, one by one
              ... jobs=N|auto                      N at once; auto: one for each GPU, or core
              ... again=never|changed|always       which runs of an earlier sweep begin anew
python run.py resume=FOLDER [steps=N]              resume a stopped run or extend one
python run.py from=FOLDER [key=value]...           a new run, configured as an earlier one
python run.py --cfg job [...]                      check and print the configuration and exit
python run.py algo=ppo engine=vllm --help          the keys of these choices
python run.py --version                            this version and commit
eval "$(python run.py -sc install=bash)"           complete choices and keys with Tab in this shell

"spo" is Soft Policy Optimization (arXiv 2503.05453). `python -m algorithms` compares the
algorithms; docs/guide/running.md tells more."""
GROUPS = ("algo", "task", "model", "engine", "sandbox", "runtime", "logger", "experiment")
KINDS = ("job", "hydra", "all")  # of --cfg
SECTIONS = (  # in the order of the help
    "train",
    "eval",
    "replay",
    "task",
    "model",
    "engine",
    "sandbox",
    "judge",
    "runtime",
    "logger",
)


def help_text(arguments: Sequence[str]) -> str:
    """The usage, all choices, and the keys of the chosen ones. Raises UserError."""
    overrides = [a for a in arguments if a != "help" and not a.startswith(("-", "resume="))]
    job = jobs_of(overrides)[0]
    with errors_on_one_line(job):
        values = plain_values(compose(job))
    return "\n".join([USAGE, *_choices(), *_keys(values)])


def _choices() -> Iterator[str]:
    defaults = (CONF / "config.yaml").read_text()
    for group in GROUPS:
        default = re.search(rf"^  - {group}: (\S+)", defaults, re.MULTILINE)
        chosen = "" if default is None else f", by default {default[1]}"
        yield from ("", f"== {group}=NAME{chosen} ==", *choice_lines(CONF / group))


def _keys(values: Mapping[str, Any]) -> Iterator[str]:
    """The keys by section, the top level first and the algorithm's options last."""
    top = {key: value for key, value in values.items() if key not in (*SECTIONS, "algo")}
    yield from ("", "== Keys of the run ==", *key_lines(RunConfig, values=top))
    schemas = {field.name: field for field in fields(RunConfig)}
    for section in SECTIONS:
        schema: Any = schemas[section].default_factory
        about = (schema.__doc__ or "").strip().split("\n")[0]
        yield from ("", f"== {section}: {about} ==")
        yield from key_lines(schema, f"{section}.", values[section])
    algo = values["algo"]
    try:
        core: Any = load_function(str(algo["core"]), "algo.core")
    except ValueError as error:
        raise UserError(str(error)) from error
    yield from ("", f"== algo: options of {algo['name']} (algo=NAME --help: another's) ==")
    yield from key_lines(core.Config, "algo.", algo)


def shown_text(arguments: Sequence[str]) -> str | None:
    """The text that a command line asks for in place of a run; None: it asks for a run.

    Raises UserError.
    """
    if wants_help(arguments):
        return help_text(arguments)
    words, package = _without_flags(arguments)
    return None if words is None else job_text(words, package)


def job_text(words: Sequence[str], package: str = "") -> str:
    """The checked, resolved configuration of each job as YAML. Raises UserError.

    `package`: the section to print, as of Hydra's --package. A package that is not installed is a
    warning on stderr: the run may be meant for another machine.
    """
    with noting_missing_packages() as missing:
        text = _job_text(words, package)
    for line in missing:
        print(f"WARNING: {line}", file=sys.stderr)
    return text


def _job_text(words: Sequence[str], package: str) -> str:
    folders = [word for word in words if word.startswith("resume=")]
    if folders:
        overrides = [word for word in words if word not in folders and not is_sweep([word])]
        config = resumed_config(named_folder(folders[-1]), overrides)
        return _yaml(OmegaConf.create(asdict(config)), package)
    jobs = jobs_of(words)
    configs = [_checked(job) for job in counted(jobs, "checking jobs")]  # before one is printed
    texts = [_yaml(config, package) for config in configs]
    if not is_sweep(words):
        return texts[0]
    heads = (f"# {' '.join(job)}" for job in jobs)
    return "\n---\n".join(f"{head}\n{text}" for head, text in zip(heads, texts, strict=True))


def _checked(job: Sequence[str]) -> DictConfig:
    with errors_on_one_line(job):
        composed = compose(job)
        parse(composed)
    return composed


def _yaml(config: DictConfig, package: str) -> str:
    missing = object()
    selected = OmegaConf.select(config, package, default=missing) if package else config
    if selected is missing:
        raise UserError(f"--package {package}: the configuration has no such section or key")
    if not OmegaConf.is_config(selected):
        return json.dumps(selected, ensure_ascii=False)
    return OmegaConf.to_yaml(selected, resolve=True).rstrip()


def _without_flags(arguments: Sequence[str]) -> tuple[list[str] | None, str]:
    """Return the command line without Hydra's flags of `--cfg job`, and the value of --package.

    The former is None if the command line does not ask for `--cfg job`. Raises UserError for a
    kind of configuration that there is not.
    """
    words, rest, package, asked = [], list(arguments), "", False
    while rest:
        word, equals, value = rest.pop(0).partition("=")
        if word in ("--cfg", "-c", "--package", "-p"):
            value = value if equals else (rest.pop(0) if rest else "")
            if word in ("--cfg", "-c") and value not in KINDS:
                raise UserError(
                    f"{' '.join(filter(None, (word, value)))}: choose one of {', '.join(KINDS)}"
                )
            asked = asked or (word in ("--cfg", "-c") and value == "job")
            package = value if word in ("--package", "-p") else package
        elif word != "--resolve":  # it is always done here
            words.append(word + equals + value)
    return (words if asked else None), package
