"""Secrets at rest: encrypted (AES-GCM) under the store's key, and bound to the row they belong to.

A value is authenticated together with its table, the key of its row and the id of its encryption
key: copied into another row it can't be decrypted. Beside the ciphertext stand the id of the key
and the names of the secrets inside, which the redacted options show as well.

The store names its key in `facts`. A transaction that encrypts locks that row until it ends, so
that nobody can change the key at the same time and leave a value under the old one.
"""

from __future__ import annotations

import base64
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from sqlalchemy import Connection, select

from headrace.errors import BadSetting, KeyRefused, Refused
from headrace.store.core.driver_errors import store_name
from headrace.store.core.engine import keyring_of
from headrace.store.core.keyring import SecretKey, how_to_give
from headrace.store.core.prepared_statements import PreparedStatement
from headrace.store.core.schema import ENCRYPTED_UNDER, facts

FORMAT = 1
NONCE_BYTES = 12

Sealed = Mapping[str, Any]  # an encrypted value, as a JSON column stores it

_GIVE_AGAIN = "submit the job again, or remove the catalog and add it again"
_KEY = select(facts.c.value).where(facts.c.name == ENCRYPTED_UNDER)
_CURRENT, _HELD = PreparedStatement(_KEY), PreparedStatement(_KEY.with_for_update(read=True))


@dataclass(frozen=True, slots=True)
class SecretOwner:
    """The row that a secret belongs to."""

    table: str
    key: str

    def __str__(self) -> str:
        kinds = {"job_secrets": "job", "cleanups": "cleanup of job", "catalog_secrets": "catalog"}
        return f"{kinds.get(self.table, self.table)} {self.key!r}"


def of_job(incarnation: str) -> SecretOwner:
    return SecretOwner("job_secrets", incarnation)


def of_cleanup(incarnation: str) -> SecretOwner:
    return SecretOwner("cleanups", incarnation)


def of_catalog(name: str) -> SecretOwner:
    return SecretOwner("catalog_secrets", name)


def seal(conn: Connection, owner: SecretOwner, secrets: Mapping[str, Any]) -> Sealed | None:
    """Encrypt secrets under the store's key, inside a write transaction. None: there are none."""
    if not secrets:
        return None
    row = _HELD.row(conn)
    return seal_under(_find_key(conn, row[0] if row else None), owner, secrets)


def unseal(conn: Connection, owner: SecretOwner, stored: Sealed | None) -> Mapping[str, Any]:
    """The secrets of a row; empty when nothing is stored.

    Raises KeyRefused when this program does not hold the key, or can't read it right now; and plain
    Refused when no key will ever open them.
    """
    if not stored:
        return {}
    if "format" not in stored:
        raise Refused(
            f"the secrets of {owner} were written by an older program, which encrypts nothing, and "
            f"are not used; {_GIVE_AGAIN}, and change those passwords"
        )
    return unseal_under(_key_of_stored(conn, owner, stored), owner, stored)


def _key_of_stored(conn: Connection, owner: SecretOwner, stored: Sealed) -> SecretKey:
    """The key that a stored value names."""
    key_id = str(stored.get("key"))
    try:
        return _find_key(conn, key_id)
    except KeyRefused:
        if key_id == current_key_id(conn):
            raise
        # A key change encrypts every row again, so this key will never come back.
        raise Refused(
            f"the secrets of {owner} name key {key_id!r}, which is not the store's: they were "
            f"changed; {_GIVE_AGAIN}"
        ) from None


def names_of(stored: Sealed | None) -> Sequence[str]:
    """The names of the secrets inside, as "<plugin name>.<option path>", without decrypting
    them."""
    return [str(name) for name in (stored or {}).get("names", ())]


def current_key_id(conn: Connection) -> str | None:
    """The id of the key that the store is encrypted under. None: it has none yet."""
    row = _CURRENT.row(conn)
    return row[0] if row else None


def check_key(conn: Connection, *, made: bool = True) -> None:
    """Raise KeyRefused when this program does not hold the store's key; or, when the store is
    not `made` yet, when it has no key to give it."""
    check_key_given(conn)
    if made and (key_id := current_key_id(conn)) is not None:
        _find_key(conn, key_id)


def current_key(conn: Connection, *, made: bool) -> SecretKey:
    """The store's key, for whoever migrates it.

    A store that is not `made` yet, or is older than the encryption of secrets, gets one. The key is
    durable before anything is encrypted under it: a start that dies here leaves a key that the next
    start uses.
    """
    check_key_given(conn)
    key_id = current_key_id(conn) if made else None
    return keyring_of(conn).make() if key_id is None else _find_key(conn, key_id)


def check_key_given(conn: Connection) -> None:
    """Raise KeyRefused when the store's key has to be given to this program, and was not."""
    if keyring_of(conn).is_key_missing:
        raise KeyRefused(f"store {store_name(conn.engine)}: {how_to_give()}")


def seal_under(key: SecretKey, owner: SecretOwner, secrets: Mapping[str, Any]) -> Sealed:
    """Encrypt secrets under `key`, bound to their owner."""
    names, nonce = sorted(secrets), os.urandom(NONCE_BYTES)
    clear = json.dumps(dict(secrets)).encode()
    sealed = AESGCM(key.sealing).encrypt(nonce, clear, _associated_data(owner, key.id, names))
    text = base64.b64encode(nonce + sealed).decode()
    return {"format": FORMAT, "key": key.id, "names": names, "sealed": text}


def unseal_under(key: SecretKey, owner: SecretOwner, stored: Sealed) -> Mapping[str, Any]:
    """Decrypt what `seal_under` made. Raises Refused when it was changed, or belongs to another
    row."""
    try:
        sealed = base64.b64decode(stored["sealed"], validate=True)
        associated_data = _associated_data(owner, key.id, names_of(stored))
        clear = AESGCM(key.sealing).decrypt(
            sealed[:NONCE_BYTES], sealed[NONCE_BYTES:], associated_data
        )
    except (InvalidTag, KeyError, TypeError, ValueError):
        raise Refused(
            f"the secrets of {owner} can't be decrypted under key {key.id}: they were changed, or "
            f"belong to another row; {_GIVE_AGAIN}"
        ) from None
    return json.loads(clear)


def _associated_data(owner: SecretOwner, key_id: str, names: Sequence[str]) -> bytes:
    """What is authenticated with the ciphertext, though it is not part of it."""
    return json.dumps(["headrace", FORMAT, owner.table, owner.key, key_id, list(names)]).encode()


def _find_key(conn: Connection, key_id: str | None) -> SecretKey:
    """The key of this id. Raises KeyRefused when this program does not hold it."""
    keyring = keyring_of(conn)
    try:
        key = keyring.find(key_id) if key_id is not None else None
    except BadSetting as error:  # the file was in order when the program started
        message = f"store {store_name(conn.engine)} is encrypted under key {key_id}, and {error}"
        raise KeyRefused(message, key_id=key_id) from error
    if key is not None:
        return key
    raise KeyRefused(_missing_key_message(conn, key_id), key_id=key_id)


def _missing_key_message(conn: Connection, key_id: str | None) -> str:
    keyring, store = keyring_of(conn), store_name(conn.engine)
    if keyring.is_key_missing:
        return f"store {store}: {how_to_give()}"
    own, given = keyring.own, keyring.names()
    problem = f"{given} does not hold it" if given else f"its key file {own and own.path} is gone"
    return (
        f"store {store} is encrypted under key {key_id}, and {problem}; give that key again. If it "
        "is lost, the secrets in the store are too: `headrace store forget-secrets` lists whose "
        "they are, and gives the store a new key"
    )
