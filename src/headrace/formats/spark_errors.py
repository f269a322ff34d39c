"""What Spark says when it refuses something, as one line that a person can read."""

from __future__ import annotations

import re

LINE_CHARACTERS_MAX = 500
_SQLSTATE = re.compile(r"\s*SQLSTATE: \w+\s*")
_PLACE = re.compile(r"\s*;?\s*line (?P<line>\d+),? pos (?P<column>\d+)")


def one_line(error: Exception) -> str:
    """Spark's message up to its plan, excerpt or Java trace, with the place in the query."""
    text = str(error)
    place = _PLACE.search(text)
    for end in ("\n==", "\n'", "\n+-", "JVM stacktrace", "\n\tat "):
        text = text.partition(end)[0]
    text = " ".join(_PLACE.sub("", _SQLSTATE.sub(" ", text)).split()).rstrip(" ;.")
    where = f" (line {place['line']}, column {int(place['column']) + 1})" if place else ""
    return text[:LINE_CHARACTERS_MAX] + where
