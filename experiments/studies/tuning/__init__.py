"""Tuning of a study's arms: search spaces, trials, re-scores, and the files of their results.

Knows configurations and scores. Must not know how a run trains, or the test problems.
"""
