"""Console: a sink that shows rows."""

from __future__ import annotations
