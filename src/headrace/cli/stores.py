"""Which store a command means, and whether its URL can be read."""

from __future__ import annotations

from sqlalchemy import URL, make_url
from sqlalchemy.exc import ArgumentError

from headrace.config import Settings
from headrace.errors import BadSetting
from headrace.store.engine import FORMS


def store_url(given: str | None, settings: Settings) -> str | None:
    """The URL of --store, or else of HEADRACE_STORE, which no list of processes shows."""
    url = given or (settings.store.get_secret_value() if settings.store else None)
    if url is not None:
        parse_store(url)
    return url


def parse_store(url: str) -> URL:
    try:
        return make_url(url)
    except (ArgumentError, ValueError) as error:  # ValueError: a port that is no number
        # The text may hold a password, so it is not repeated.
        raise BadSetting(f"the store's URL can not be read; write it as {FORMS}") from error
