"""Stored samples: replay buffer, sample log, earlier runs, offline programs, frozen batches.

Knows samples and judges; knows no engine and no learner.
"""
