"""Iceberg tables: stage rows unseen, commit them once, abort, sweep (design: "Iceberg commit")."""

from __future__ import annotations
