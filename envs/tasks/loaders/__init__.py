"""One module for each data set: a function from a row to a Problem, or a reason to skip the row.

Knows rows and the rules that infer a checker. Must not know files, caches, splits or the sandbox.
"""
