"""Command lines: key=value arguments parsed into dataclasses, `--help`, and text safe to print.

Knows dataclasses and their docstrings. Must not know problems, programs or runs.
"""
