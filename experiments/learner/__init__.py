"""The learner: forward passes, losses' gradients, optimiser steps, and the memory they take.

The room knows samples and policies. It must not know engines, rollouts or other processes.
"""
