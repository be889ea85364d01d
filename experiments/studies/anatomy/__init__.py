"""`make anatomy`: the gradients of all objectives on the same batches, side by side."""
