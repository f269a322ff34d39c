"""InMemory: SeaTunnel's test sink."""

from __future__ import annotations
