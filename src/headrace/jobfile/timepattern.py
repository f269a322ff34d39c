"""Patterns of dates and times as Java writes them, e.g. `yyyy.MM.dd`: the plain letters of them.

Read here and not in the JVM, so that a wrong one is told when the job file is read.
"""

from __future__ import annotations

import re
from datetime import datetime

_LETTERS = {
    "yyyy": "%Y",
    "uuuu": "%Y",
    "yy": "%y",
    "MM": "%m",
    "dd": "%d",
    "HH": "%H",
    "mm": "%M",
    "ss": "%S",
    "SSS": "%f",  # six digits; `render` cuts them
}
_PIECE = re.compile(
    r"'(?P<quoted>[^']*)'|(?P<letters>(?P<letter>[A-Za-z])(?P=letter)*)|(?P<other>.)"
)


def pattern_flaw(pattern: str) -> str | None:
    """What is wrong with a pattern; None when it can be used."""
    for piece in _PIECE.finditer(pattern):
        letters = piece["letters"]
        if letters and letters not in _LETTERS:
            return f"{letters!r} is no part of a time; known are {', '.join(_LETTERS)}"
        if piece["other"] == "'":
            return "a quote is left open"
    return None


def filename_pattern_flaw(pattern: str) -> str | None:
    if "/" in pattern or "\\" in pattern:
        return "a file's name has no slash"
    return pattern_flaw(pattern)


def render(pattern: str, moment: datetime) -> str:
    return "".join(_render(piece, moment) for piece in _PIECE.finditer(pattern))


def _render(piece: re.Match[str], moment: datetime) -> str:
    if piece["quoted"] is not None:
        return piece["quoted"] or "'"
    if piece["letters"]:
        text = moment.strftime(_LETTERS[piece["letters"]])
        return text[:3] if piece["letters"] == "SSS" else text
    return piece["other"]
