"""Decide whether a response solves a problem: extract the program, run it, compare its output.

Knows problems, programs and the sandbox. Must not know tasks, prompts, rewards or training.
"""
