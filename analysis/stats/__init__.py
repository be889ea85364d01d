"""Statistics of scores: intervals, paired differences, tiers, power, equal budgets and tables.

Knows arrays of scores, groups and runs; knows no file of a run folder and no report.
"""
