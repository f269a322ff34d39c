"""Text that every store can hold: PostgreSQL refuses a NUL, and an error may quote one."""

from __future__ import annotations

from typing import Annotated

from pydantic import AfterValidator


def without_nul(text: str) -> str:
    return text.replace("\0", "")


Text = Annotated[str, AfterValidator(without_nul)]
