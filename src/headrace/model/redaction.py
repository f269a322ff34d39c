"""Lines that others wrote, without the values of what sounds secret in them."""

from __future__ import annotations

import re

from headrace.logs import REDACTED, is_secret
from headrace.model.text import without_nul

# name=value, name: value, "name": "value"; a value that stands between quotes may have spaces.
_PAIR = re.compile(
    r"(?P<name>[A-Za-z][\w.-]*)(?P<between>[\"']?\s*[=:]\s*)"
    r"(?P<value>\"[^\"]*\"|'[^']*'|[^\s\"',;]+)"
)
_USERINFO = re.compile(r"(//[^/?#@\s:]*:)[^/?#@\s]+@")
_BEARER = re.compile(r"(?i)\b((?:bearer|basic)\s+)[\w.~+/=-]{8,}")


def redacted(line: str) -> str:
    line = _BEARER.sub(rf"\1{REDACTED}", _USERINFO.sub(rf"\1{REDACTED}@", without_nul(line)))
    return _PAIR.sub(_pair, line)


def _pair(found: re.Match[str]) -> str:
    if not is_secret(found["name"]):
        return found[0]
    return f"{found['name']}{found['between']}{REDACTED}"
