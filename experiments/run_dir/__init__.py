"""The run folder: records, checkpoints, resume state, budget ledger, loggers and display.

The room knows files and the costs of a run; it imports no policy, learner, engine or loop.
"""

from experiments.run_dir.interrupts import defer_interrupts, raise_interrupts

__all__ = ["defer_interrupts", "raise_interrupts"]
