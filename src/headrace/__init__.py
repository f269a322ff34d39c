"""Headrace: crash-proof data pipelines and self-optimizing lake tables on Spark."""

from __future__ import annotations

__version__ = "0.1.0"
