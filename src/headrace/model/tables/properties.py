"""Table properties are text that anybody may have set: each is read by a parser that knows what it
expects and says so, and never raises.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass

INTEGER_MAX = 2**63 - 1  # what a store's column holds
# Beyond it nothing ever comes, and added to a time it still fits: Long.MAX is said for "never".
DURATION_MAX_MS = 2**62
_DURATION = re.compile(r"(-?\d{1,19})\s*(ms|s|min|h|d)?", re.ASCII | re.IGNORECASE)
_WHOLE = re.compile(r"[+-]?\d{1,19}", re.ASCII)
_UNITS_MS: Mapping[str, int] = {
    "ms": 1,
    "s": 1_000,
    "min": 60_000,
    "h": 3_600_000,
    "d": 86_400_000,
}


@dataclass(frozen=True, slots=True)
class Flaw:
    """A property that could not be read, or that works against another."""

    name: str
    value: str
    expected: str
    used: str  # the value that holds instead, as it would be written
    source: str  # where it is set: "table", "catalog" or "group"

    def __str__(self) -> str:
        return (
            f"{self.source} property {self.name} is {self.value!r}, expected {self.expected}; "
            f"{self.used} is used. Set it to such a value, or remove it"
        )


@dataclass(frozen=True, slots=True)
class Parser:
    """`read` gives None for a text that is not what was expected."""

    expected: str
    read: Callable[[str], object | None]


@dataclass(frozen=True, slots=True)
class Property:
    name: str
    field: str
    parser: Parser

    def read(
        self, properties: Mapping[str, str], default: object, source: str, flaws: list[Flaw]
    ) -> object:
        """The value set here, or the default: with a flaw noted when one is set and is no good."""
        value = properties.get(self.name)
        if value is None:
            return default
        parsed = self.parser.read(value.strip())
        if parsed is not None:
            return parsed
        flaws.append(Flaw(self.name, value, self.parser.expected, _written(default), source))
        return default


def boolean() -> Parser:
    return Parser("true or false", lambda text: {"true": True, "false": False}.get(text.lower()))


def text() -> Parser:
    return Parser("a name", lambda value: value or None)


def optional_text() -> Parser:
    """Empty text is a predicate that nobody wrote; it is left to whoever applies it to refuse."""
    return Parser("a predicate", lambda value: value)


def whole(*, least: int) -> Parser:
    def read(value: str) -> int | None:
        if not _WHOLE.fullmatch(value):
            return None
        number = int(value)
        return number if least <= number <= INTEGER_MAX else None

    return Parser(f"a whole number from {least} on", read)


def size() -> Parser:
    return Parser("a number of bytes, at least 1", whole(least=1).read)


def fraction(
    *, least: float = -math.inf, above: float = -math.inf, most: float = math.inf
) -> Parser:
    def read(value: str) -> float | None:
        try:
            number = float(value)
        except ValueError:
            return None
        return number if _within(number) else None

    def _within(number: float) -> bool:
        return math.isfinite(number) and number >= least and number > above and number <= most

    bounds = [
        f"{word} {bound:g}"
        for word, bound in (("at least", least), ("above", above), ("at most", most))
        if math.isfinite(bound)
    ]
    return Parser(" ".join(["a number", " and ".join(bounds)]), read)


def duration_ms() -> Parser:
    """Negative is for "never", and is one number for all who say it."""

    def read(value: str) -> int | None:
        found = _DURATION.fullmatch(value)
        if found is None:
            return None
        number = int(found[1]) * _UNITS_MS[(found[2] or "ms").lower()]
        return min(max(number, -1), DURATION_MAX_MS) if number <= INTEGER_MAX else None

    return Parser("milliseconds, or a number with ms, s, min, h or d; -1 for never", read)


def _written(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return "nothing" if value is None else str(value)
