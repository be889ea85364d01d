"""Evaluation: pass@k of the policy, its KL to the base, and the check of the engine's log-probs.

The room knows engines, judges and the learner's log-probs; it takes no optimiser step and writes
no records. Its modules import torch, so it has no door: import them by their full path.
"""
