"""Differential privacy: noise for a training, and the ledger of what it released.

Only `training` and `truncation` bring torch along.
"""
