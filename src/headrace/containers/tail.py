"""The last lines of a log, without reading the whole of it."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

TAIL_BYTES_MAX = 1_000_000


def last_lines(path: Path, lines: int) -> Sequence[str]:
    """At most so many, and of the last million bytes only; none when there is no such file."""
    try:
        with path.open("rb") as log:
            end = log.seek(0, os.SEEK_END)
            log.seek(max(0, end - TAIL_BYTES_MAX))
            text = log.read(TAIL_BYTES_MAX).decode(errors="replace")
    except FileNotFoundError:
        return []
    return text.splitlines()[-lines:] if lines > 0 else []
