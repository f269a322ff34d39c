"""Text that every store can hold: PostgreSQL refuses a NUL, and an error may quote one. And times,
as a text tells them."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated

from pydantic import AfterValidator


def without_nul(text: str) -> str:
    return text.replace("\0", "")


Text = Annotated[str, AfterValidator(without_nul)]


def utc(at_ms: int) -> str:
    """A time for people who may be anywhere: 2026-01-31T10:20:30Z."""
    return datetime.fromtimestamp(at_ms / 1000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
