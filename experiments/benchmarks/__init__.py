"""One module for each `make bench which=…`, and `make gpu-check`.

`common.py` measures and tells. Knows every room of the project. No other room may import it.
"""
