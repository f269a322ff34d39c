"""What nobody may read of a catalog's properties, wherever an error repeats it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from urllib.parse import unquote

from headrace.logs import REDACTED, is_secret
from headrace.model.redaction import blanked, secret_places

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
            key: REDACTED if is_secret(key) else self.text(blanked(value))
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
    found = {value[first:last] for first, last in secret_places(value)}
    return found | {unquote(secret) for secret in found} | {one.strip("{}") for one in found}
