"""Find a data set's rows, convert them once, and keep the problems on disk.

Knows files, the hub and Arrow tables. Must not know splits, prompts, the sandbox or training.
"""
