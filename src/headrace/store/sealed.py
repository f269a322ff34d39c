"""Secrets at rest: encrypted under the store's key, and bound to the row that they belong to.

A value is authenticated together with its table, the key of its row and the id of its encryption
key: copied into another row it can't be decrypted. Beside the ciphertext stand the id of the key
and the names of what is inside, which the redacted options show as well.

The store names its key in `facts`. Whoever encrypts holds that row until his transaction ends, so
that nobody changes the key beside him and leaves a value under the old one.
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
from headrace.store.engine import keyring_of
from headrace.store.facts import ENCRYPTED_UNDER
from headrace.store.faults import where
from headrace.store.keyring import SecretKey, how_to_give
from headrace.store.prepared import Prepared
from headrace.store.schema import facts

FORMAT = 1
NONCE_BYTES = 12

Sealed = Mapping[str, Any]  # as it stands in a column of JSON

_GIVE_AGAIN = "submit the job again, or remove the catalog and add it again"
_KEY = select(facts.c.value).where(facts.c.name == ENCRYPTED_UNDER)
_CURRENT, _HELD = Prepared(_KEY), Prepared(_KEY.with_for_update(read=True))


@dataclass(frozen=True, slots=True)
class Place:
    """The row that a value belongs to."""

    table: str
    key: str

    def __str__(self) -> str:
        kinds = {"job_secrets": "job", "cleanups": "cleanup of job", "catalog_secrets": "catalog"}
        return f"{kinds.get(self.table, self.table)} {self.key!r}"


def of_job(incarnation: str) -> Place:
    return Place("job_secrets", incarnation)


def of_cleanup(incarnation: str) -> Place:
    return Place("cleanups", incarnation)


def of_catalog(name: str) -> Place:
    return Place("catalog_secrets", name)


def seal(conn: Connection, place: Place, secrets: Mapping[str, Any]) -> Sealed | None:
    """Encrypt them under the store's key, in a write transaction. None: there are none."""
    if not secrets:
        return None
    row = _HELD.row(conn)
    return seal_under(_key(conn, row[0] if row else None), place, secrets)


def unseal(conn: Connection, place: Place, stored: Sealed | None) -> Mapping[str, Any]:
    """The secrets of a row; none when nothing is stored. KeyRefused: the key is not held here, or
    not right now. Refused otherwise: no key will ever open them."""
    if not stored:
        return {}
    if "format" not in stored:
        raise Refused(
            f"the secrets of {place} were written by an older program, which encrypts nothing, and "
            f"are not used; {_GIVE_AGAIN}, and change those passwords"
        )
    return unseal_under(_key_of(conn, place, stored), place, stored)


def _key_of(conn: Connection, place: Place, stored: Sealed) -> SecretKey:
    key_id = str(stored.get("key"))
    try:
        return _key(conn, key_id)
    except KeyRefused:
        if key_id == current_key_id(conn):
            raise
        # A change of the key encrypts every row anew: nobody will ever bring this one.
        raise Refused(
            f"the secrets of {place} name key {key_id!r}, which is not the store's: they were "
            f"changed; {_GIVE_AGAIN}"
        ) from None


def names_of(stored: Sealed | None) -> Sequence[str]:
    """What is inside, by "<plugin name>.<option path>", without decrypting it."""
    return [str(name) for name in (stored or {}).get("names", ())]


def current_key_id(conn: Connection) -> str | None:
    """The id of the key that the store is encrypted under; None: it has none yet."""
    row = _CURRENT.row(conn)
    return row[0] if row else None


def check_key(conn: Connection, *, made: bool = True) -> None:
    """Raise KeyRefused when this program does not hold the store's key, or, if the store is not
    `made` yet, has none for it."""
    check_given(conn)
    if made and (key_id := current_key_id(conn)) is not None:
        _key(conn, key_id)


def current_key(conn: Connection, *, made: bool) -> SecretKey:
    """The store's key, for whoever migrates it. A store that is not `made` yet, or is older than
    the encryption of secrets, gets one. It is durable before anything is encrypted under it: a
    start that dies leaves a key that the next one takes.
    """
    check_given(conn)
    key_id = current_key_id(conn) if made else None
    return keyring_of(conn).make() if key_id is None else _key(conn, key_id)


def check_given(conn: Connection) -> None:
    """Raise KeyRefused when the store is one that has to be given its key, and was not."""
    if keyring_of(conn).is_needed:
        raise KeyRefused(f"store {where(conn.engine)}: {how_to_give()}")


def seal_under(key: SecretKey, place: Place, secrets: Mapping[str, Any]) -> Sealed:
    names, nonce = sorted(secrets), os.urandom(NONCE_BYTES)
    clear = json.dumps(dict(secrets)).encode()
    sealed = AESGCM(key.sealing).encrypt(nonce, clear, _bound(place, key.id, names))
    text = base64.b64encode(nonce + sealed).decode()
    return {"format": FORMAT, "key": key.id, "names": names, "sealed": text}


def unseal_under(key: SecretKey, place: Place, stored: Sealed) -> Mapping[str, Any]:
    try:
        sealed = base64.b64decode(stored["sealed"], validate=True)
        bound = _bound(place, key.id, names_of(stored))
        clear = AESGCM(key.sealing).decrypt(sealed[:NONCE_BYTES], sealed[NONCE_BYTES:], bound)
    except (InvalidTag, KeyError, TypeError, ValueError):
        raise Refused(
            f"the secrets of {place} can't be decrypted under key {key.id}: they were changed, or "
            f"belong to another row; {_GIVE_AGAIN}"
        ) from None
    return json.loads(clear)


def _bound(place: Place, key_id: str, names: Sequence[str]) -> bytes:
    return json.dumps(["headrace", FORMAT, place.table, place.key, key_id, list(names)]).encode()


def _key(conn: Connection, key_id: str | None) -> SecretKey:
    keyring = keyring_of(conn)
    try:
        found = keyring.find(key_id) if key_id is not None else None
    except BadSetting as error:  # of a file that was in order when the program started
        said = f"store {where(conn.engine)} is encrypted under key {key_id}, and {error}"
        raise KeyRefused(said, key_id=key_id) from error
    if found is not None:
        return found
    raise KeyRefused(_missing(conn, key_id), key_id=key_id)


def _missing(conn: Connection, key_id: str | None) -> str:
    keyring, store = keyring_of(conn), where(conn.engine)
    if keyring.is_needed:
        return f"store {store}: {how_to_give()}"
    own, given = keyring.own, keyring.names()
    looked = f"{given} does not hold it" if given else f"its key file {own and own.path} is gone"
    return (
        f"store {store} is encrypted under key {key_id}, and {looked}; give that key again. If it "
        "is lost, the secrets in the store are too: `headrace store forget-secrets` lists whose "
        "they are, and gives the store a new key"
    )
