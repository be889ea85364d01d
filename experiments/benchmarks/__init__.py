"""One module for each `make bench-…` target, and `make gpu-check`.

`common.py` measures and tells, `workload.py` is what training and generation are measured on.
Knows every room of the project. No other room may import it.
"""
