"""Migrate a store to this program's schema, or refuse to touch it (L4).

All of it is one transaction under a lock. DDL is transactional on both databases, so a start that
is killed leaves the store as it was, and of two concurrent starts the second finds nothing to do.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from threading import Event
from typing import Any

from alembic import command
from alembic.config import Config
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, Engine, column, func, inspect, select, table

from headrace.errors import StoreRefused
from headrace.model.ids import Ids, RandomIds
from headrace.store.core import schema as core_schema
from headrace.store.core.driver_errors import store_name
from headrace.store.core.encryption import Sealed, SecretOwner, check_key, current_key, seal_under
from headrace.store.core.engine import insert_new, is_sqlite, reading
from headrace.store.core.keyring import SecretKey
from headrace.store.core.schema import STORE_ID, check_program, facts, metadata
from headrace.store.core.transactions import in_tx
from headrace.store.groups import groups as group_schema
from headrace.store.jobs import schema as job_schema
from headrace.store.tables import schema as table_schema
from headrace.store.tasks import schema as task_schema

__all__ = ["DECLARED", "metadata"]

# Each module declares its tables in `metadata` when it is imported; migrations need all of them.
DECLARED = (core_schema, task_schema, group_schema, job_schema, table_schema)

MIGRATIONS = Path(__file__).parent / "migrations"
REVISIONS = "headrace_revisions"  # not Alembic's default name, which other programs use, too
LOCK = 0x6865_6164_6D69_6772  # the key of PostgreSQL's advisory lock: "headmigr"
LOCK_WAIT_MS = 30_000  # for another start that migrates, and for the lock of a table
MIGRATION_MAX_MS = 600_000  # for one statement of a migration

log = logging.getLogger(__name__)


def prepare_store(engine: Engine, *, ids: Ids | None = None) -> None:
    """Make the store ready for this program. It is idempotent, and safe for many starts at once.

    A store whose revision this program does not know, but that still admits it, is used as it is: a
    rolling upgrade. Raises StoreRefused when the database belongs to another application, or newer
    programs have changed it so that this one must not write to it; and KeyRefused when this program
    does not hold the key of the store's secrets, or a PostgreSQL store was opened without any.
    """
    config = migrations_config()
    with reading(engine) as conn:
        # The tables of a first start may appear between two of our queries, so tables without a
        # revision are judged under the lock only.
        if revision(conn) is not None and _is_prepared(conn, engine, config):
            check_key(conn)
            return
    new_id = (ids or RandomIds()).new()  # made outside of the transaction, which may run twice
    in_tx(engine, lambda conn: _migrate(conn, engine, config, new_id), stop=Event())


def migrations_config() -> Config:
    """Alembic's configuration, without a file. `%` is special in it."""
    config = Config()
    config.set_main_option("script_location", str(MIGRATIONS).replace("%", "%%"))
    config.set_main_option("path_separator", "os")
    return config


def revision(conn: Connection) -> str | None:
    """The revision that the store is at. None: it has none."""
    if not inspect(conn).has_table(REVISIONS):
        return None
    return conn.scalar(select(table(REVISIONS, column("version_num")).c.version_num))


def _is_prepared(conn: Connection, engine: Engine, config: Config) -> bool:
    """Whether there is nothing to do. Raises StoreRefused when nothing may be done."""
    current = revision(conn)
    if current is None:
        if names := inspect(conn).get_table_names():
            raise StoreRefused(
                f"store {store_name(engine)} holds tables of another application "
                f"({', '.join(sorted(names)[:3])}); give headrace a database of its own"
            )
        return False
    check_program(conn)
    scripts = ScriptDirectory.from_config(config)
    known = {script.revision for script in scripts.walk_revisions()}
    if current not in known:
        log.warning("store was upgraded by a newer headrace", extra={"revision": current})
        return True
    return current == scripts.get_current_head()


def _migrate(conn: Connection, engine: Engine, config: Config, new_id: str) -> None:
    """Migrate the store, unless another start has done it."""
    if not is_sqlite(conn):  # on SQLite the transaction itself is the lock
        _lock(conn)
    if _is_prepared(conn, engine, config):
        check_key(conn)
        return
    key = current_key(conn, made=revision(conn) is not None)
    config.attributes["connection"] = conn
    config.attributes["secret_key"] = key.id
    config.attributes["seal"] = partial(_sealed, key)
    command.upgrade(config, "head")
    insert_new(conn, facts, name=STORE_ID, value=new_id)
    log.info("store migrated", extra={"store": store_name(engine), "revision": revision(conn)})


def _sealed(key: SecretKey, table: str, row: str, secrets: Mapping[str, Any]) -> Sealed:
    """Seal secrets for a migration, which refers to tables and imports none of our modules."""
    return seal_under(key, SecretOwner(table, row), secrets)


def _lock(conn: Connection) -> None:
    """Wait for other starts that migrate, and give migrations more time than other work."""
    limits_ms = {
        "lock_timeout": LOCK_WAIT_MS,
        "statement_timeout": MIGRATION_MAX_MS,
        "idle_in_transaction_session_timeout": LOCK_WAIT_MS,
    }
    for name, limit_ms in limits_ms.items():
        conn.execute(select(func.set_config(name, str(limit_ms), True)))  # noqa: FBT003
    conn.execute(select(func.pg_advisory_xact_lock(LOCK)))
