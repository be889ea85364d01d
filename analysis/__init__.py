"""Turn run folders into tables, intervals, figures and the report.

Knows the files of a run folder and nothing of how runs are made: it imports no algorithm, no
experiment, and of the environments only the command-line parser `envs.command_line`.
"""

from analysis.pass_at_k import pass_at_k

__all__ = ["pass_at_k"]
