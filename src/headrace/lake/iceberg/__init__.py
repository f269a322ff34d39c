"""Iceberg tables: stage, commit once or abort, scan, rewrite, sweep (design: "Iceberg commit")."""

from __future__ import annotations
