"""Change the key of a store: encrypt every secret again, or delete them all when the key is lost.

It is one transaction, which also ends the leader's term: a coordinator that was not given the new
key can neither lead nor encrypt from then on. Other coordinators go on; the transaction waits for
whoever encrypts at this moment.

The file beside a SQLite store has both keys before the store changes, and the new one alone
afterwards: a process that dies in between leaves a store that opens, and the next try goes on from
there. The file is written only under the store's write lock, and an older key is taken out of it
only while the store is under the newer one: so it has the key of the store at every moment, also
when several processes change the key at once.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from threading import Event
from typing import Any

from sqlalchemy import Column, Connection, Engine, Table, delete, select, update

from headrace.errors import Refused, StoreRefused
from headrace.model.jobs.epoch import incarnation_of
from headrace.seams import seam
from headrace.store.core.driver_errors import store_name
from headrace.store.core.encryption import (
    Sealed,
    SecretOwner,
    check_key_given,
    current_key,
    current_key_id,
    names_of,
    of_catalog,
    of_cleanup,
    of_job,
    seal_under,
    unseal,
)
from headrace.store.core.engine import keyring_of, reading
from headrace.store.core.keyring import Keyring, SecretKey
from headrace.store.core.leases import NOBODY
from headrace.store.core.schema import ENCRYPTED_UNDER, check_program, facts, leases
from headrace.store.core.transactions import LEADER, in_tx
from headrace.store.jobs.schema import cleanups, job_secrets, jobs
from headrace.store.migrate import revision
from headrace.store.tables.schema import catalog_secrets


@dataclass(frozen=True, slots=True)
class Owner:
    """A job, cleanup or catalog that has secrets in the store."""

    kind: str  # job, cleanup or catalog
    name: str
    secrets: Sequence[str]  # their names


@dataclass(frozen=True, slots=True)
class Forgotten:
    """What `forget_secrets` did."""

    owners: Sequence[Owner]  # whose secrets were deleted
    key_id: str  # of the key that the store is under
    is_new: bool  # it was under another one before


@dataclass(frozen=True, slots=True)
class _Row:
    """A row that has secrets, and what they are bound to."""

    table: Table
    key: Column[Any]
    value: str
    secret_owner: SecretOwner
    owner: Owner
    stored: Sealed


def change_key(engine: Engine) -> tuple[str, int]:
    """Change the store's key. Returns the id of the new key, and how many values are under it."""
    before = _check_store(engine)

    def work(conn: Connection) -> tuple[SecretKey, int]:
        _lock(conn)
        current, keyring = current_key(conn, made=True), keyring_of(conn)
        if _is_changed(keyring, before, current.id):
            return current, len(list(_rows(conn)))
        key = keyring.next(current.id)
        seam("next key in its file, before commit")
        _check_can_change(current, key)
        return key, _change_key(conn, key)

    key, count = in_tx(engine, work, stop=Event())
    seam("key changed, before its file")
    _drop_older_keys(engine, key)
    return key.id, count


def _is_changed(keyring: Keyring, before: str, current: str) -> bool:
    """Whether the key was changed since this command began, so that nothing is left to do: by a
    try of this command whose answer was lost, or by another command. A given key has to be that
    very key."""
    if current == before:
        return False
    return keyring.own is not None or keyring.make().id == current


def _drop_older_keys(engine: Engine, key: SecretKey) -> None:
    """Leave only `key` in the file beside the store; unless a later change came after this one,
    whose key is in the file and is not known here."""
    own = keyring_of(engine).own
    if own is None:
        return

    def work(conn: Connection) -> None:
        if current_key_id(conn) == key.id:
            own.write([key])

    in_tx(engine, work, stop=Event())


def owners_of_secrets(engine: Engine) -> Sequence[Owner]:
    """Whose secrets are in the store, by name; nothing is decrypted."""
    _check_store(engine)
    with reading(engine) as conn:
        return _owners(conn)


def forget_secrets(engine: Engine) -> Forgotten:
    """Delete all secrets. From then on the key is the given one, or that of the store's own
    file."""
    _check_store(engine)

    def work(conn: Connection) -> Forgotten:
        key, before = keyring_of(conn).make(), current_key_id(conn)
        return Forgotten(_forget_secrets(conn, key), key.id, is_new=before != key.id)

    return in_tx(engine, work, stop=Event())


def _check_store(engine: Engine) -> str:
    """The id of the store's key. Raises StoreRefused when the store can't change it."""
    with reading(engine) as conn:
        if revision(conn) is None:
            raise StoreRefused(f"store {store_name(engine)} is empty, and so has no key to change")
        check_program(conn)
        current = current_key_id(conn)
        if current is None:
            raise StoreRefused(
                f"store {store_name(engine)} is of an older version, which encrypted nothing; a "
                "coordinator of this version upgrades it when it starts"
            )
        check_key_given(conn)
    return current


def _change_key(conn: Connection, key: SecretKey) -> int:
    """Encrypt every secret under `key`, and make it the store's. Returns how many there were.

    Raises Refused, and changes nothing, when one can't be decrypted.
    """
    _set_store_key(conn, key)
    count = 0
    for row in list(_rows(conn)):
        sealed = seal_under(key, row.secret_owner, unseal(conn, row.secret_owner, row.stored))
        mine = row.key == row.value
        conn.execute(update(row.table).where(mine).values(sealed=dict(sealed)))
        count += 1
    return count


def _forget_secrets(conn: Connection, key: SecretKey) -> Sequence[Owner]:
    """Delete every secret, and make `key` the store's. Returns whose they were."""
    _lock(conn)
    _set_store_key(conn, key)
    owners = _owners(conn)
    conn.execute(delete(job_secrets))
    conn.execute(delete(catalog_secrets))
    conn.execute(update(cleanups).values(sealed=None))
    return owners


def _owners(conn: Connection) -> Sequence[Owner]:
    return [row.owner for row in _rows(conn)]


def _check_can_change(current: SecretKey, key: SecretKey) -> None:
    """Raise Refused when the store is under `key` already."""
    if current.id == key.id:
        raise Refused(
            f"the store is under key {key.id} already, which is the first one that was given; put "
            "the new key before it"
        )


def _lock(conn: Connection) -> None:
    """Wait for the leader's transaction and for whoever encrypts now, and keep others from
    beginning.

    The rows are locked in the order in which a leader locks them, to avoid a deadlock.
    """
    lease = select(leases.c.epoch).where(leases.c.name == LEADER)
    conn.execute(lease.with_for_update()).all()
    named = select(facts.c.value).where(facts.c.name == ENCRYPTED_UNDER)
    conn.execute(named.with_for_update()).one()


def _set_store_key(conn: Connection, key: SecretKey) -> None:
    """Name `key` as the store's, and end the leader's term. The caller has locked both rows."""
    over = {"holder": NOBODY, "epoch": leases.c.epoch + 1}
    conn.execute(update(leases).where(leases.c.name == LEADER).values(**over))
    mine = facts.c.name == ENCRYPTED_UNDER
    conn.execute(update(facts).where(mine).values(value=key.id))


def _rows(conn: Connection) -> Iterator[_Row]:
    """Every row that has secrets."""
    of_jobs = select(jobs.c.id, jobs.c.incarnation, job_secrets.c.sealed).join(
        job_secrets, job_secrets.c.job_id == jobs.c.id
    )
    for job, incarnation, stored in conn.execute(of_jobs.order_by(jobs.c.id)).all():
        owner = Owner("job", job, names_of(stored))
        yield _Row(job_secrets, job_secrets.c.job_id, job, of_job(incarnation), owner, stored)
    of_cleanups = select(cleanups.c.incarnation, cleanups.c.job_id, cleanups.c.sealed)
    kept = of_cleanups.where(cleanups.c.sealed.is_not(None)).order_by(cleanups.c.incarnation)
    for key, job, stored in conn.execute(kept).all():
        if stored:
            owner = Owner("cleanup", f"{job} ({incarnation_of(key)})", names_of(stored))
            yield _Row(cleanups, cleanups.c.incarnation, key, of_cleanup(key), owner, stored)
    of_catalogs = select(catalog_secrets.c.catalog, catalog_secrets.c.sealed)
    for name, stored in conn.execute(of_catalogs.order_by(catalog_secrets.c.catalog)).all():
        owner = Owner("catalog", name, names_of(stored))
        mine = catalog_secrets.c.catalog
        yield _Row(catalog_secrets, mine, name, of_catalog(name), owner, stored)
