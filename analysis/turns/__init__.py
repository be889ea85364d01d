"""Conversations of several turns: answers, public tests, observations and what they change.

A run has them if its evals.parquet has the columns of `analysis.turns.counts.TURN_COLUMNS`.
"""
