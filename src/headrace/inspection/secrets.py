"""What nobody may read of a catalog's properties, wherever an error repeats it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from urllib.parse import parse_qsl, unquote, urlsplit

from headrace.logs import REDACTED, is_secret

SECRET_CHARS_MIN = 4  # a shorter one may stand in any word


class Redactor:
    """Takes the secrets of these properties out of texts."""

    def __init__(self, properties: Mapping[str, str]) -> None:
        found = {value for key, value in properties.items() if is_secret(key)}
        for value in properties.values():
            found.update(_inside(value))
        long = (secret for secret in found if len(secret) >= SECRET_CHARS_MIN)
        self._secrets: Sequence[str] = sorted(long, key=len, reverse=True)
        self._shown = {
            key: REDACTED if is_secret(key) else self.text(value)
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
    try:
        parts = urlsplit(value.removeprefix("jdbc:"))
        password, query = parts.password, parts.query
    except ValueError:  # no URI, then
        return set()
    found = {password} if password else set[str]()
    for separator in ("&", ";"):
        pairs = parse_qsl(query, separator=separator)
        found.update(told for name, told in pairs if is_secret(name))
    found.update(_of_parameters(value))
    return found | {unquote(secret) for secret in found}


def _of_parameters(value: str) -> set[str]:
    """`…;user=x;password=y` as SQL Server's URLs have it, and `?password=y` as it is written."""
    found: set[str] = set()
    for part in value.replace("?", ";").replace("&", ";").split(";")[1:]:
        name, equals, told = part.partition("=")
        if equals and is_secret(name.strip()):
            found.add(told)
    return found
