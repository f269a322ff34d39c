"""Which groups a snapshot replaced, in its summary: short, and they are many. Pure."""

from __future__ import annotations

from collections.abc import Iterable


def ranges(found: Iterable[int]) -> str:
    """As `0-3,5`."""
    told: list[list[int]] = []
    for number in sorted(set(found)):
        if told and told[-1][1] == number - 1:
            told[-1][1] = number
        else:
            told.append([number, number])
    return ",".join(str(a) if a == b else f"{a}-{b}" for a, b in told)


def numbers(told: str) -> frozenset[int]:
    found: set[int] = set()
    for part in told.split(","):
        first, _, last = part.partition("-")
        found.update(range(int(first), int(last or first) + 1))
    return frozenset(found)
