"""Environments of a run: judges with one sandbox, or the class that task.environment names."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, nullcontext
from dataclasses import dataclass
from functools import partial

from envs.environment import Environment
from envs.import_by_name import load_function
from envs.judge.judge import Judge
from envs.judge.verdict_cache import VerdictCache, default_file
from envs.sandbox import open_sandbox
from envs.sandbox.base import SandboxError
from experiments.config.schema import RunConfig
from experiments.errors import UserError


@dataclass(frozen=True)
class Environments:
    """A factory of equal environments, each with its own counters."""

    make: Callable[[], Environment]
    name: str  # of the sandbox
    strength: str  # of its isolation, in words


@contextmanager
def open_environments(config: RunConfig) -> Iterator[Environments]:
    """Open a sandbox if programs are judged; it closes with the block. Raises UserError."""
    if config.task.environment is not None:
        make = _environment_class(config.task.environment)
        yield Environments(make, "none", "no program is run")
        return
    try:
        sandbox = open_sandbox(config.sandbox)
    except SandboxError as error:
        raise UserError(str(error)) from error
    shared = config.sandbox.verdict_cache
    cache = closing(VerdictCache(default_file())) if shared else nullcontext()
    with sandbox, cache as verdicts:
        make_judge = partial(Judge, sandbox, config.judge, verdicts)
        yield Environments(make_judge, sandbox.name, sandbox.strength)


def _environment_class(name: str) -> Callable[[], Environment]:
    try:
        make = load_function(name, "task.environment")
        missing = [part for part in ("version", "stats", "judge") if not hasattr(make(), part)]
    except ValueError as error:
        raise UserError(str(error)) from error
    except TypeError as error:
        reason = f"it must be callable without arguments, but {error}"
        raise UserError(f"task.environment={name}: {reason}") from error
    if missing:
        raise UserError(f"task.environment={name}: its result has no {' and no '.join(missing)}")
    return make
