"""Connectors: where rows come from (Source) and where they go (Sink), on Spark."""

from __future__ import annotations
