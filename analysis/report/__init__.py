"""The report: statements, caveats, tables and figures of experiments, as files and one page.

Knows the statistics and how to show them; computes no metric and reads no run folder's files.
"""
