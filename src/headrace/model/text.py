"""Text that every store can hold: PostgreSQL refuses a NUL, and an error may quote one. Text that
is cut where a sentence ends. And times, as a text tells them."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Annotated

from pydantic import BeforeValidator

_UNSTORABLE = re.compile("[\0\ud800-\udfff]")
_HALF = re.compile("[\ud800-\udfff]")
_BYTES_AT = 0xDC00


def storing_flaw(text: str) -> str | None:
    """Why a text can't be kept: PostgreSQL has no NUL, and UTF-8 no half of a character."""
    found = _UNSTORABLE.search(text)
    if found is None:
        return None
    return "a NUL character" if found[0] == "\0" else "half of a surrogate pair"


def legible(text: str) -> str:
    """Bytes that are no UTF-8, in names that Python took from elsewhere, as `\\xe9`."""
    return _HALF.sub(lambda found: _escaped(ord(found[0])), text)


def _escaped(code: int) -> str:
    byte = code - _BYTES_AT  # where Python keeps what it could not decode
    return f"\\x{byte:02x}" if 0x80 <= byte <= 0xFF else f"\\u{code:04x}"


def without_nul(text: str) -> str:
    return text.replace("\0", "")


_SENTENCE_END = re.compile(r"[.;!?](?=\s)|\n")
_SHORTENED = " …"


def shortened(text: str, most: int) -> str:
    """At most so many characters: up to the end of a line or a sentence, or else of a word.

    A text that breaks off in the middle of a word reads as if the program had failed to say it.
    """
    text = text.strip()
    if len(text) <= most:
        return text
    kept = text[: most - len(_SHORTENED)]
    ends = [found.end() for found in _SENTENCE_END.finditer(text, 0, len(kept) + 1)]
    if ends and ends[-1] >= most // 3:
        return text[: ends[-1]].rstrip(" \n;") + _SHORTENED
    words = kept if text[len(kept)].isspace() else kept.rpartition(" ")[0]
    if len(words) < most // 3:  # one word is most of it
        words = kept
    return words.rstrip() + _SHORTENED


def _storable(value: object) -> object:
    """Before it is validated: pydantic takes no half of a character for a text."""
    if not isinstance(value, str) or storing_flaw(value) is None:
        return value
    return legible(without_nul(value))


# Of what is told by a worker, or kept for people: it is never refused, and always fits.
Text = Annotated[str, BeforeValidator(_storable)]


def utc(at_ms: int) -> str:
    """A time for people who may be anywhere: 2026-01-31T10:20:30Z."""
    return datetime.fromtimestamp(at_ms / 1000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
