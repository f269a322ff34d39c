"""Secrets that stand inside a text: in lines that others wrote, in URIs and connection strings."""

from __future__ import annotations

import re
from urllib.parse import urlsplit

from headrace.logs import REDACTED, is_secret
from headrace.model.text import without_nul

# name=value, name: value, "name": "value"; a value that stands between quotes may have spaces.
_PAIR = re.compile(
    r"(?P<name>[A-Za-z][\w.-]*)(?P<between>[\"']?\s*[=:]\s*)"
    r"(?P<value>\"[^\"]*\"|'[^']*'|[^\s\"',;]+)"
)
_USERINFO = re.compile(r"(//[^/?#@\s:]*:)[^/?#@\s]+@")
_BEARER = re.compile(r"(?i)\b((?:bearer|basic)\s+)[\w.~+/=-]{8,}")
# `password=y` behind ? & ; or in brackets, and `{y;z}` as SQL Server takes it.
_PARAMETER = re.compile(r"(?P<name>[\w.-]+)\s*=\s*(?P<told>\{[^}]*\}|[^&;,)\s]+)")
_ORACLE = re.compile(r"jdbc:oracle:\w+:[^/@]*/(?P<told>[^@]+)@", re.IGNORECASE)


def redacted(line: str) -> str:
    line = _BEARER.sub(rf"\1{REDACTED}", _USERINFO.sub(rf"\1{REDACTED}@", without_nul(line)))
    return _PAIR.sub(_pair, line)


def _pair(found: re.Match[str]) -> str:
    if not is_secret(found["name"]):
        return found[0]
    return f"{found['name']}{found['between']}{REDACTED}"


def secret_places(value: str) -> set[tuple[int, int]]:
    """Where in a URI or a connection string secrets stand: from, to. None lies in another."""
    found = {each.span("told") for each in _PARAMETER.finditer(value) if is_secret(each["name"])}
    oracle = _ORACLE.match(value)
    if oracle is not None:
        found.add(oracle.span("told"))
    try:
        password = urlsplit(value.removeprefix("jdbc:")).password
    except ValueError:  # no URI, then
        return found
    if password:
        first = value.index(f":{password}@") + 1
        whole = (first, first + len(password))
        found = {each for each in found if each[1] <= whole[0] or each[0] >= whole[1]} | {whole}
    return found
