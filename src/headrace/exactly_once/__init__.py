"""Exactly once, for every target: spend a token by data or by an abort, look, decide, delete."""
