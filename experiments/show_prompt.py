"""Print a problem's prompt as the model reads it: in its chat template, with its special tokens.

    python -m experiments.show_prompt task=NAME model=NAME [KEY=VALUE ...] [problem=NAME]

Takes run.py's arguments. `problem` is a name or a part of it; without it, the first problem that
is trained on. The weights are not loaded.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import replace

from rich.console import Console
from rich.panel import Panel
from rich.text import Text

from envs.command_line import quiet_when_unread, wants_help
from envs.problem import Problem
from envs.readable import MAX_ERROR_CHARS, readable
from envs.show import find_problem
from envs.tasks import Task, open_task
from experiments.config.command_line import spelt_out
from experiments.config.composition import config_of
from experiments.config.model_folder import check_tokenizer
from experiments.config.resolve_defaults import resolve_defaults
from experiments.config.schema import RunConfig
from experiments.errors import UserError

PROBLEM = "problem="
MAX_CHARS = 20_000  # of a prompt


def main(argv: Sequence[str] | None = None) -> int:
    """Return 0, or 2 after a one-line error."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    if wants_help(arguments):
        print(__doc__)
        return 0
    part = next((a.removeprefix(PROBLEM) for a in arguments if a.startswith(PROBLEM)), None)
    overrides = [argument for argument in arguments if not argument.startswith(PROBLEM)]
    try:
        config = resolve_defaults(config_of(spelt_out(overrides)), "cpu")
        check_tokenizer(config.model.path, config.task.chat, config.model.fallback)
        problem, task = _problem(config, part)
        show(config, problem, task, Console(highlight=False))
    except (UserError, ValueError, OSError) as error:
        print(f"error: {readable(str(error), MAX_ERROR_CHARS)}", file=sys.stderr)
        return 2
    return 0


def show(config: RunConfig, problem: Problem, task: Task, console: Console) -> None:
    """Print one prompt and how its tokens compare with the limit. Raises UserError."""
    from experiments.policy.loading import load_tokenizer
    from experiments.rollout.prompts import encode_prompts

    tokenizer = load_tokenizer(config.model)
    unlimited = replace(config.task, max_prompt_tokens=sys.maxsize)
    prompts, _ = encode_prompts([problem], task, tokenizer, unlimited, config.model.chat_args)
    tokens = list(prompts[0].tokens)
    text = readable(str(tokenizer.decode(tokens)), MAX_CHARS)
    console.print(Panel(Text(text), title=Text(f"{problem.name}, {config.model.name}")))
    limit = config.task.max_prompt_tokens
    verdict = "within" if limit is None or len(tokens) <= limit else "beyond, so a run drops it:"
    console.print(f"{len(tokens)} tokens, {verdict} task.max_prompt_tokens={limit}")
    template = "the model's chat template" if config.task.chat else "no chat template"
    given = f", model.chat_args={config.model.chat_args}" if config.model.chat_args else ""
    console.print(f"{template}{given}; the end token is {tokenizer.eos_token!r}", soft_wrap=True)


def _problem(config: RunConfig, part: str | None) -> tuple[Problem, Task]:
    if part is not None:
        return find_problem(config.task, part)
    task = open_task(config.task)
    if not task.train:
        raise UserError(f"task={config.task.name} has no problem to train on; give problem=NAME")
    return task.train[0], task


if __name__ == "__main__":
    with quiet_when_unread():
        sys.exit(main())
