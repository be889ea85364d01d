"""One module for each `make bench-…` target, the model behind `make scaling`, and `make gpu-check`.

Knows every room of the project. No other room may import it.
"""
