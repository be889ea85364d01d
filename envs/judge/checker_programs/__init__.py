"""Problems whose outputs a program checks: compile it, run it, read what it says of an output.

Knows the sandbox and executions. Must not know responses, caches or tasks.
"""
