"""Validation of a data set and of the judge: labelled programs, error rates, problems' quality.

Knows tasks, the judge and its verdicts. Must not know rewards or training.
"""
