"""FakeSource: rows made up from a schema."""

from __future__ import annotations
