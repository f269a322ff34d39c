"""The requirements, and the list of those not built yet, as they stand in files."""

from __future__ import annotations

import re
from collections import Counter

from tools.tree import ROOT

PAGE = ROOT / "docs" / "requirements.md"
NOT_BUILT = ROOT / "tests" / "not_built.txt"

_ID = re.compile(r"[A-Z]\d+")
_HEADING = re.compile(rf"^### ({_ID.pattern})\b", re.MULTILINE)


class BadFile(Exception):
    """One of the files read here does not have the form it must have."""


def requirement_ids() -> frozenset[str]:
    """Every id that has a heading of its own on the requirements page."""
    found = Counter(_HEADING.findall(PAGE.read_text(encoding="utf-8")))
    if twice := sorted(name for name, times in found.items() if times > 1):
        raise BadFile(f"{PAGE.name}: {', '.join(twice)} has more than one heading")
    return frozenset(found)


def not_built() -> dict[str, str]:
    """Ids that are not built yet, each with its reason."""
    reasons: dict[str, str] = {}
    for number, line in enumerate(NOT_BUILT.read_text(encoding="utf-8").splitlines(), start=1):
        if not line.strip() or line.startswith("#"):
            continue
        name, _, reason = line.partition(" ")
        if not _ID.fullmatch(name) or not reason.strip() or name in reasons:
            raise BadFile(
                f"{NOT_BUILT.name}:{number}: expected an id that stands here once, a space and "
                f"a reason, found {line!r}"
            )
        reasons[name] = reason.strip()
    return reasons
