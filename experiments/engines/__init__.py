"""Engines: they generate responses with a policy's weights, and are synced with new ones.

The room knows policies. It must not know the learner, rewards or how a run is distributed.
"""
