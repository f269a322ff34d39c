"""Real Spark and real Iceberg tables, on one warm session."""

from __future__ import annotations
