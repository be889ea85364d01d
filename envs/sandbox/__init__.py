"""Run untrusted programs on inputs, within limits, isolated from the host and from each other.

Knows programs, inputs and limits. Must not know problems, expected outputs, verdicts or rewards.
`open_sandbox` opens the backend that the configuration names, or the strongest of this machine.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import Literal

from pydantic import NonNegativeInt

from envs.sandbox.base import Sandbox, SandboxError

SandboxKind = Literal["auto", "docker", "embedded"]

log = logging.getLogger(__name__)


@dataclass
class SandboxConfig:
    """The configuration group `sandbox`."""

    # auto: docker if an engine answers, else embedded
    kind: SandboxKind = "auto"
    workers: NonNegativeInt = 0  # programs judged at the same time; 0: one for each core
    i_accept_no_isolation: bool = False  # run if only a system-call filter confines programs
    # share verdicts with other runs on this machine; counts, verdicts and charged costs equal
    # those of judging every program again
    verdict_cache: bool = False


def open_sandbox(config: SandboxConfig | None = None) -> Sandbox:
    """Start the sandbox. Raises SandboxError, with the remedy, where that is not possible."""
    from envs.sandbox.docker import DockerSandbox, unavailable
    from envs.sandbox.embedded import EmbeddedSandbox

    config = config or SandboxConfig()
    sandbox: Sandbox | None = None
    if config.kind != "embedded":
        if (reason := unavailable()) is None:
            sandbox = DockerSandbox(config.workers)
        elif config.kind == "docker":
            raise SandboxError(reason)
        else:
            log.info("sandbox: no Docker here (%s)", reason)
    accepted = config.i_accept_no_isolation
    sandbox = sandbox or EmbeddedSandbox(config.workers, i_accept_no_isolation=accepted)
    log.info("sandbox: %s (%s)", sandbox.name, sandbox.strength)
    return sandbox
