"""Assert: a sink that judges rows and keeps none."""

from __future__ import annotations
