"""Which store a command means, whether its URL can be read, and the key of its secrets."""

from __future__ import annotations

from pathlib import Path

from sqlalchemy import URL, make_url
from sqlalchemy.exc import ArgumentError

from headrace.config import Settings
from headrace.errors import BadSetting
from headrace.store.core.engine import FORMS
from headrace.store.core.keyring import VARIABLE, GivenKeys, KeyFile, KeySource, read_keys


def store_url(option: str | None, settings: Settings) -> str | None:
    """The URL of --store, or else of HEADRACE_STORE, which no list of processes shows."""
    url = option or (settings.store.get_secret_value() if settings.store else None)
    if url is not None:
        parse_store(url)
    return url


def secret_keys(file: Path | None, settings: Settings) -> KeySource | None:
    """The keys of --secret-key-file, or else of HEADRACE_SECRET_KEY; None: there are neither."""
    if file is not None:
        return KeyFile.checked(file)
    if settings.secret_key is None:
        return None
    try:
        return GivenKeys(read_keys(settings.secret_key.get_secret_value()))
    except ValueError as error:
        raise BadSetting(f"environment variable {VARIABLE} can not be used: {error}") from None


def parse_store(url: str) -> URL:
    try:
        return make_url(url)
    except (ArgumentError, ValueError) as error:  # ValueError: the port is not a number
        # The text may hold a password, so it is not repeated.
        raise BadSetting(f"the store's URL can not be read; write it as {FORMS}") from error
