"""Stores as tests open them: with the key that every store of the tests is encrypted under.

Processes that a test starts find the same key in their environment.
"""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from sqlalchemy import Engine

from headrace.store.core import engine
from headrace.store.core.engine import keyring_of, with_keyring
from headrace.store.core.keyring import GivenKeys, KeyFile, Keyring, SecretKey

KEY = SecretKey(bytes(range(32)))
KEYS = GivenKeys([KEY])

open_store = partial(engine.open_store, keys=KEYS)


@contextmanager
def key_away(store: Engine) -> Generator[None]:
    """The key was not read yet, and its file can't be read for a while."""
    held = keyring_of(store)
    with_keyring(store, Keyring(KeyFile(Path("/dev/null/no.key"))))
    try:
        yield
    finally:
        with_keyring(store, held)
