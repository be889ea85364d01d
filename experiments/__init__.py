"""Runs: the only room that knows both problems (`envs`) and objectives (`algorithms`).

`launch.train` starts a run under its runtime; `trainer.train` is the loop. Both import torch, so
they are imported by their full path.
"""
