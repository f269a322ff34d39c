"""Self-optimizing, decided without a table, a store or a clock."""

from __future__ import annotations
