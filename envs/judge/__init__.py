"""Decide whether a response solves a problem: extract the program, run it, compare its output.

Knows problems, programs and the sandbox. Must not know tasks, prompts, rewards or training.
"""

from envs.judge.checker import check
from envs.judge.extract import as_response, extract_program
from envs.judge.judge import Judge, JudgeConfig
from envs.judge.verdict_cache import VerdictCache

__all__ = [
    "Judge",
    "JudgeConfig",
    "VerdictCache",
    "as_response",
    "check",
    "extract_program",
]
