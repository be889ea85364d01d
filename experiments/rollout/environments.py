"""What judges a run's responses: the judge and its sandbox, or what task.environment names."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, closing, contextmanager, nullcontext
from dataclasses import dataclass

from envs.environment import Environment
from envs.import_by_name import load_function
from envs.judge.judge import Judge
from envs.judge.verdict_cache import VerdictCache, default_file
from envs.sandbox.base import SandboxError
from envs.sandbox.select import open_sandbox
from experiments.config.schema import RunConfig
from experiments.errors import UserError


@dataclass(frozen=True)
class Environments:
    """Makes environments that are alike, each with counters of its own."""

    make: Callable[[], Environment]
    name: str  # of the sandbox
    strength: str


@contextmanager
def open_environments(config: RunConfig) -> Iterator[Environments]:
    """A sandbox is opened only for programs, and closes with the block. Raises UserError."""
    if config.task.environment is not None:
        made = _named(config.task.environment)
        yield Environments(made, "none", "no program is run")
        return
    try:
        sandbox = open_sandbox(config.sandbox)
    except SandboxError as error:
        raise UserError(str(error)) from error
    with sandbox, _verdicts(config) as verdicts:
        make = lambda: Judge(sandbox, config.judge, verdicts)  # noqa: E731
        yield Environments(make, sandbox.name, sandbox.strength)


def _verdicts(config: RunConfig) -> AbstractContextManager[VerdictCache | None]:
    return closing(VerdictCache(default_file())) if config.sandbox.verdict_cache else nullcontext()


def _named(name: str) -> Callable[[], Environment]:
    try:
        make = load_function(name, "task.environment")
        lacks = [part for part in ("version", "stats", "judge") if not hasattr(make(), part)]
    except ValueError as error:
        raise UserError(str(error)) from error
    except TypeError as error:
        told = f"it must make one without arguments, but {error}"
        raise UserError(f"task.environment={name}: {told}") from error
    if lacks:
        raise UserError(f"task.environment={name}: what it makes has no {' and no '.join(lacks)}")
    return make
