"""Opens the sandbox that the configuration asks for, or the strongest that this machine has."""

from __future__ import annotations

import logging
from dataclasses import dataclass

from envs.sandbox.base import Sandbox, SandboxError

KINDS = ("auto", "docker", "embedded")

log = logging.getLogger(__name__)


@dataclass
class SandboxConfig:
    """The configuration group `sandbox`."""

    kind: str = "auto"  # docker, embedded, or auto: docker if an engine answers, else embedded
    workers: int = 0  # programs judged at the same time; 0: one for each core
    i_accept_no_isolation: bool = False  # run where only a system-call filter holds programs


def open_sandbox(config: SandboxConfig | None = None) -> Sandbox:
    """Start the sandbox. Raises SandboxError, with the way out, where that cannot be done."""
    config = config or SandboxConfig()
    if config.kind not in KINDS:
        raise SandboxError(f"sandbox.kind is {config.kind!r}; it must be one of {', '.join(KINDS)}")
    if config.workers < 0:
        raise SandboxError(f"sandbox.workers is {config.workers}; it must be 0 (auto) or more")
    sandbox = _open(config)
    log.info("sandbox: %s (%s)", sandbox.name, sandbox.strength)
    return sandbox


def _open(config: SandboxConfig) -> Sandbox:
    if config.kind != "embedded":
        from envs.sandbox.docker import DockerSandbox, unavailable

        reason = unavailable()
        if reason is None:
            return DockerSandbox(config.workers)
        if config.kind == "docker":
            raise SandboxError(reason)
        log.info("sandbox: no Docker here (%s)", reason)
    from envs.sandbox.embedded import EmbeddedSandbox

    return EmbeddedSandbox(config.workers, i_accept_no_isolation=config.i_accept_no_isolation)
