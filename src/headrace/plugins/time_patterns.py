"""Java's patterns of dates and times, e.g. `yyyy.MM.dd`, restricted to the plain letters.

They are read here and not in the JVM, so that a wrong one is refused when the job file is read.
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
    "SSS": "%f",  # six digits; `_render_piece` cuts them
}
_PIECE = re.compile(
    r"'(?P<quoted>[^']*)'|(?P<letters>(?P<letter>[A-Za-z])(?P=letter)*)|(?P<other>.)"
)


def time_pattern_flaw(pattern: str) -> str | None:
    """What is wrong with a pattern of dates and times, or None."""
    for piece in _PIECE.finditer(pattern):
        letters = piece["letters"]
        if letters and letters not in _LETTERS:
            return f"{letters!r} is no part of a time; known are {', '.join(_LETTERS)}"
        if piece["other"] == "'":
            return "a quote is left open"
    return None


def render_time(pattern: str, moment: datetime) -> str:
    """The moment as a pattern without flaw writes it."""
    return "".join(_render_piece(piece, moment) for piece in _PIECE.finditer(pattern))


def _render_piece(piece: re.Match[str], moment: datetime) -> str:
    if piece["quoted"] is not None:
        return piece["quoted"] or "'"
    if piece["letters"]:
        text = moment.strftime(_LETTERS[piece["letters"]])
        return text[:3] if piece["letters"] == "SSS" else text
    return piece["other"]
