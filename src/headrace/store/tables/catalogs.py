"""Catalogs: where lake tables are found, and the result of the last discovery in each."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import Connection, Update, bindparam, delete, select, update

from headrace.store.core.encryption import of_catalog, seal, unseal
from headrace.store.core.engine import insert_new
from headrace.store.core.prepared_statements import PreparedStatement
from headrace.store.tables.schema import catalog_secrets, catalogs

EMBEDDED = "headrace"  # always there, in the warehouse of the worker that opens it
EMBEDDED_TYPE = "embedded"


@dataclass(frozen=True, slots=True)
class Catalog:
    """A catalog as it is stored."""

    name: str
    type: str
    properties: Mapping[str, str]  # without secrets
    defaults: Mapping[str, str]
    table_filter: str | None
    group: str
    created_at_ms: int
    wanted_removed: bool
    due_at_ms: int
    task_id: str | None
    discovered_at_ms: int | None
    failures: int
    error: str | None


@dataclass(frozen=True, slots=True)
class NewCatalog:
    """A catalog as a command adds it."""

    name: str
    type: str
    properties: Mapping[str, str]
    group: str
    defaults: Mapping[str, str] = field(default_factory=dict[str, str])
    table_filter: str | None = None
    secrets: Mapping[str, str] = field(default_factory=dict[str, str], repr=False)


_COLUMNS = tuple(
    catalogs.c[name]
    for name in (
        *("name", "type", "properties", "defaults", "table_filter", "group_name"),
        *("created_at_ms", "wanted_removed", "due_at_ms", "task_id", "discovered_at_ms"),
        *("failures", "error"),
    )
)
_GET = PreparedStatement(select(*_COLUMNS).where(catalogs.c.name == bindparam("of")))
_LOCK = PreparedStatement(
    select(*_COLUMNS).where(catalogs.c.name == bindparam("of")).with_for_update()
)
_ALL = PreparedStatement(select(*_COLUMNS).order_by(catalogs.c.name))
_SECRETS = PreparedStatement(
    select(catalog_secrets.c.sealed).where(catalog_secrets.c.catalog == bindparam("of"))
)


def _to_catalog(row: Sequence[Any]) -> Catalog:
    name, kind, properties, defaults, filters, group, created_at_ms, removed, *rest = row
    return Catalog(
        name, kind, properties, defaults, filters, group, created_at_ms, bool(removed), *rest
    )


def add(conn: Connection, new: NewCatalog, *, now_ms: int, due_at_ms: int | None = None) -> bool:
    """Add a catalog; its discovery is due at once by default. False: the name is taken."""
    inserted = insert_new(
        conn,
        catalogs,
        name=new.name,
        type=new.type,
        properties=dict(new.properties),
        defaults=dict(new.defaults),
        table_filter=new.table_filter,
        group_name=new.group,
        created_at_ms=now_ms,
        due_at_ms=now_ms if due_at_ms is None else due_at_ms,
    )
    if inserted and new.secrets:
        sealed = seal(conn, of_catalog(new.name), new.secrets)
        insert_new(conn, catalog_secrets, catalog=new.name, sealed=sealed)
    return inserted


def get(conn: Connection, name: str) -> Catalog | None:
    row = _GET.row(conn, {"of": name})
    return _to_catalog(row) if row else None


def lock(conn: Connection, name: str) -> Catalog | None:
    """The catalog, which nobody else changes until the transaction ends."""
    row = _LOCK.row(conn, {"of": name})
    return _to_catalog(row) if row else None


def all_of_them(conn: Connection) -> Sequence[Catalog]:
    return [_to_catalog(row) for row in _ALL.rows(conn)]


def secrets_of(conn: Connection, name: str) -> Mapping[str, Any]:
    """Secrets by "<catalog>.<property>". Only an assignment, and a change of them, calls this."""
    row = _SECRETS.row(conn, {"of": name})
    return unseal(conn, of_catalog(name), row[0]) if row else {}


def configure(
    conn: Connection,
    name: str,
    *,
    properties: Mapping[str, str],
    defaults: Mapping[str, str],
    table_filter: str | None,
    group: str,
    due_at_ms: int,
) -> None:
    """Write what users asked for, and have the catalog discovered by then."""
    conn.execute(
        _of(name).values(
            properties=dict(properties),
            defaults=dict(defaults),
            table_filter=table_filter,
            group_name=group,
            due_at_ms=due_at_ms,
        )
    )


def want_removed(conn: Connection, name: str, *, due_at_ms: int) -> None:
    conn.execute(_of(name).values(wanted_removed=1, due_at_ms=due_at_ms))


def schedule_discovery(conn: Connection, name: str, *, due_at_ms: int) -> None:
    conn.execute(_of(name).values(due_at_ms=due_at_ms))


def begin_discovery(conn: Connection, name: str, *, task_id: str) -> None:
    conn.execute(_of(name).values(task_id=task_id))


def drop_discovery(conn: Connection, name: str, *, due_at_ms: int) -> None:
    """Let go of a discovery that is under way, and have another one made."""
    conn.execute(_of(name).values(task_id=None, due_at_ms=due_at_ms))


def note_discovered(
    conn: Connection, name: str, *, error: str | None, due_at_ms: int, now_ms: int
) -> None:
    """A discovery was applied. `error`: what could not be listed."""
    conn.execute(
        _of(name).values(
            task_id=None, due_at_ms=due_at_ms, discovered_at_ms=now_ms, failures=0, error=error
        )
    )


def note_not_discovered(
    conn: Connection, name: str, *, failures: int, error: str, due_at_ms: int
) -> None:
    """A discovery failed, after others in a row."""
    conn.execute(
        _of(name).values(task_id=None, due_at_ms=due_at_ms, failures=failures, error=error)
    )


def note_error(conn: Connection, name: str, error: str) -> None:
    """Record what is wrong with the catalog, which is no failed discovery."""
    conn.execute(_of(name).values(error=error))


def _of(name: str) -> Update:
    return update(catalogs).where(catalogs.c.name == name)


def change_secrets(
    conn: Connection, name: str, changed: Mapping[str, str], *, dropped: Collection[str] = ()
) -> None:
    """Store secrets that are new or different, by "<catalog>.<property>"; without those that are
    `dropped`. The others stay."""
    kept = {key: value for key, value in secrets_of(conn, name).items() if key not in dropped}
    mine = catalog_secrets.c.catalog == name
    sealed = seal(conn, of_catalog(name), {**kept, **changed})
    if sealed is None:
        conn.execute(delete(catalog_secrets).where(mine))
    elif not insert_new(conn, catalog_secrets, catalog=name, sealed=sealed):
        conn.execute(update(catalog_secrets).where(mine).values(sealed=sealed))


def drop(conn: Connection, name: str) -> None:
    """Delete the catalog. Its tables must be gone."""
    conn.execute(delete(catalog_secrets).where(catalog_secrets.c.catalog == name))
    conn.execute(delete(catalogs).where(catalogs.c.name == name))
