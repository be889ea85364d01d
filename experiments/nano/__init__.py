"""The bundled nano model, a Llama of about a million parameters, pretrained from scratch.

Knows MiniContests and transformers. Must not know algorithms, judging or runs.
"""
