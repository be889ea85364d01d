"""Policies: models with their weights' versions, adapters, shards and snapshots.

The room knows models. It must not know engines or learners.
"""
