"""MiniContests: generated contest problems, small enough for a nano model.

Knows how statements, tests and programs are generated. Must not know other data sets or models.
"""
