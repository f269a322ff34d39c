"""What nobody may read of a catalog's properties, wherever an error repeats it."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from urllib.parse import unquote, urlsplit

from headrace.logs import REDACTED, is_secret

SECRET_CHARS_MIN = 4  # a shorter one may stand in any word
# `password=y` behind ? & ; or in brackets, and `{y;z}` as SQL Server takes it.
_PARAMETER = re.compile(r"(?P<name>[\w.-]+)\s*=\s*(?P<told>\{[^}]*\}|[^&;,)\s]+)")
_ORACLE = re.compile(r"jdbc:oracle:\w+:[^/@]*/(?P<told>[^@]+)@", re.IGNORECASE)


class Redactor:
    """Takes the secrets of these properties out of texts."""

    def __init__(self, properties: Mapping[str, str]) -> None:
        found = {value for key, value in properties.items() if is_secret(key)}
        for value in properties.values():
            found.update(_inside(value))
        long = (secret for secret in found if len(secret) >= SECRET_CHARS_MIN)
        self._secrets: Sequence[str] = sorted(long, key=len, reverse=True)
        self._shown = {
            key: REDACTED if is_secret(key) else self.text(_blanked(value))
            for key, value in properties.items()
        }

    @property
    def properties(self) -> Mapping[str, str]:
        """The properties as they may be shown."""
        return self._shown

    def text(self, told: str) -> str:
        for secret in self._secrets:
            told = told.replace(secret, REDACTED)
        return told


def _inside(value: str) -> set[str]:
    """Passwords that stand in a URI, as it is written and as it is meant."""
    found = {value[first:last] for first, last in _places(value)}
    return found | {unquote(secret) for secret in found} | {one.strip("{}") for one in found}


def _blanked(value: str) -> str:
    """Without its secrets, however short they are."""
    for first, last in sorted(_places(value), reverse=True):
        value = f"{value[:first]}{REDACTED}{value[last:]}"
    return value


def _places(value: str) -> set[tuple[int, int]]:
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
