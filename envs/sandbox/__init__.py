"""Run untrusted programs on inputs, within limits, isolated from the host and from each other.

Knows programs, inputs and limits. Must not know problems, expected outputs, verdicts or rewards.
"""

from envs.sandbox.base import Execution, Job, Limits, Outcome, Sandbox, SandboxError
from envs.sandbox.select import SandboxConfig, open_sandbox

__all__ = [
    "Execution",
    "Job",
    "Limits",
    "Outcome",
    "Sandbox",
    "SandboxConfig",
    "SandboxError",
    "open_sandbox",
]
