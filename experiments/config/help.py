"""What `run.py` prints instead of running: `--help` and `--cfg job`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, fields
from pathlib import Path

from omegaconf import OmegaConf

from envs.command_line import CONF, choice_lines, wants_help, yaml_lines
from experiments.config.composition import compose, config_of, jobs_of
from experiments.config.resume import resumed_config
from experiments.config.schema import RunConfig, plain_values

USAGE = """\
SPO-Bench: train a language model to write contest programs, with one of several algorithms.

python run.py [choice=NAME | key=VALUE]...
python run.py -m algo=spo,ppo,grpo seed=0,1,2      a sweep: every combination
python run.py resume=FOLDER [steps=N]              resume a stopped run or extend one
python run.py --config-path FOLDER [key=VALUE]...  a new run with the recorded keys of another
python run.py --config-dir FOLDER [choice=NAME]... with choices of your own, laid out as conf/
python run.py --cfg job [...]                      check and print the configuration
python run.py algo=ppo engine=vllm --help          the keys of these choices

"spo" is Soft Policy Optimization (arXiv 2503.05453). `python -m algorithms` compares the
algorithms; docs/guide/running.md tells more."""
GROUPS = ("algo", "task", "model", "engine", "sandbox", "runtime", "logger", "experiment")


def shown_text(arguments: Sequence[str]) -> str | None:
    """The text that a command line asks for in place of a run, or None. Raises UserError."""
    if wants_help(arguments):
        return "\n".join(_help([word for word in arguments if not wants_help([word])]))
    words = [word for word in arguments if word not in ("--cfg", "-c", "--cfg=job", "job")]
    if len(words) == len(arguments):
        return None
    if folder := next((Path(w[7:]) for w in words if w.startswith("resume=")), None):
        rest = [word for word in words if not word.startswith("resume=")]
        return OmegaConf.to_yaml(OmegaConf.create(asdict(resumed_config(folder, rest)))).rstrip()
    texts = []
    for job in jobs_of(words):
        config_of(job)  # its checks
        texts.append(OmegaConf.to_yaml(compose(job), resolve=True).rstrip())
    return "\n---\n".join(texts)


def _help(words: Sequence[str]) -> Iterator[str]:
    """The usage, all choices, and the keys of the chosen ones with the comments of their files."""
    yield USAGE
    values = plain_values(compose(jobs_of(words)[0]))
    for group in GROUPS:
        yield from ("", f"== {group}=NAME ==", *choice_lines(CONF / group))
    sections = [field.name for field in fields(RunConfig) if isinstance(values[field.name], dict)]
    sections.remove("logger")  # its keys stand in config.yaml
    top = {key: value for key, value in values.items() if key not in sections}
    yield from ("", "== Keys of the run ==", *yaml_lines(CONF / "config.yaml", top))
    for section in sections:
        name = values[section].get("name", values[section].get("kind"))
        alone, chosen = CONF / f"{section}.yaml", CONF / section / f"{name}.yaml"
        file = alone if alone.is_file() else chosen
        yield from ("", f"== {section} ==", *yaml_lines(file, values[section], f"{section}."))
