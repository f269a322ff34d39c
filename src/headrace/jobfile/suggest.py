"""The nearest known name, for error messages."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

SHOWN_MAX = 20
NEAR_RATIO = 0.6


def nearest(name: str, known: Iterable[str]) -> str | None:
    """The known name that was probably meant, whatever its case, or None."""
    by_lower = {candidate.lower(): candidate for candidate in known}
    found = difflib.get_close_matches(name.lower(), by_lower, n=1, cutoff=NEAR_RATIO)
    return by_lower[found[0]] if found else None


def hint(name: str, known: Iterable[str], *, noun: str) -> str:
    """`did you mean 'row.num'?`, or the known names when none is near."""
    names = list(known)
    near = nearest(name, names)
    if near is not None:
        return f"did you mean {near!r}?"
    if not names:
        return f"there are no {noun}"
    shown = ", ".join(names[:SHOWN_MAX])
    more = f" and {len(names) - SHOWN_MAX} more" if len(names) > SHOWN_MAX else ""
    return f"known {noun}: {shown}{more}"
