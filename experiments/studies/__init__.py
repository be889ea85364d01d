"""Studies: resumable grids of arms and seeds from a YAML file, their tuning, and their pages.

Knows configurations, run folders and the report's files. Must not know how a run trains.
"""

from experiments.studies.study import Arm, Study, read

__all__ = ["Arm", "Study", "read"]
