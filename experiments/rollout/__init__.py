"""A batch's samples: prompts, generation with judging, rewards, initial values.

Knows engines, judges and stored samples; knows no learner and no optimiser.
"""
