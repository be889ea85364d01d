"""A run's configuration: its typed shape, its composition by Hydra, its checks.

Knows algorithms' options and tasks' keys; imports nothing heavy (no torch, no pandas).
"""

from experiments.config.checks import parse
from experiments.config.schema import RunConfig

__all__ = ["RunConfig", "parse"]
