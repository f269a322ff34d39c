"""Stores as tests open them: with the key that every store of the tests is encrypted under.

Processes that a test starts find the same key in their environment.
"""

from __future__ import annotations

from functools import partial

from headrace.store import engine
from headrace.store.keyring import GivenKeys, SecretKey

KEY = SecretKey(bytes(range(32)))
KEYS = GivenKeys([KEY])

open_store = partial(engine.open_store, keys=KEYS)
