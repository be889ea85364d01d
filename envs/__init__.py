"""Problems in, verdicts out: tasks, prompts, the judge with its sandbox, and rewards.

Knows problems, programs and verdicts. Must not know tensors, algorithms, training or run folders.
"""

from envs.judge.extract import as_response
from envs.judge.judge import Judge, JudgeConfig
from envs.problem import Problem, Submission, Test
from envs.sandbox import SandboxConfig, open_sandbox

__all__ = [
    "Judge",
    "JudgeConfig",
    "Problem",
    "SandboxConfig",
    "Submission",
    "Test",
    "as_response",
    "open_sandbox",
]
