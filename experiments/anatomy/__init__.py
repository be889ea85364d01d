"""Anatomy of objectives: the gradients of all of them on the same batches, side by side.

Knows the parts of a run and its learner, and the command line and figures of studies. It trains one
policy of its own and reads no run folder of others. No other room may import it.
"""
