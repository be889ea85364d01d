"""Read run folders and packed studies, and group comparable runs.

Knows the files of both; knows no metric, no statistics and no report.
"""

from analysis.load.groups import Group, group_runs
from analysis.load.run_folders import Run, RunError, find_runs, load_run

__all__ = ["Group", "Run", "RunError", "find_runs", "group_runs", "load_run"]
