"""The run folder: records, checkpoints, resume state, budget ledger, loggers and display.

The room knows files and the costs of a run; it imports no policy, learner, engine or loop.
"""
