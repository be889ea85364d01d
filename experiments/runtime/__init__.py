"""Runtimes: how a run is distributed over one process, the ranks of torchrun, or Ray actors.

The room knows engines, judges, the learner and their parts; it knows neither the loop nor a run's
records.
"""
