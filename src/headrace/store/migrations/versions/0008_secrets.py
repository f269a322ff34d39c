"""Secrets are encrypted, and those of an ended job's sources go with its end.

Programs before it would hand what is encrypted to workers, and write in clear: none of them may
lead any more. One that runs does not need to lead to take a job or a catalog, so the columns get
another name: no statement of it that writes a secret can succeed. A constraint would do that, too,
but PostgreSQL repeats the row that breaks one, in its log and to the program.

The key comes with the configuration: its id, and what encrypts a value for a row.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import sqlalchemy as sa
from alembic import context, op

revision = "0008"
down_revision = "0007"
branch_labels = None
depends_on = None

OLDEST_PROGRAM = "4"
Seal = Callable[[str, str, Mapping[str, Any]], Mapping[str, Any]]

_JOBS = sa.table(
    "jobs",
    *(sa.column(name, sa.Text()) for name in ("id", "incarnation")),
    sa.column("spec", sa.JSON()),
    sa.column("ended_at_ms", sa.BigInteger()),
)
_JOB_SECRETS = sa.table(
    "job_secrets",
    sa.column("job_id", sa.Text()),
    sa.column("sealed", sa.JSON(none_as_null=True)),
)
_CLEANUPS = sa.table(
    "cleanups",
    sa.column("incarnation", sa.Text()),
    sa.column("step", sa.Text()),
    sa.column("sealed", sa.JSON(none_as_null=True)),
)
_CATALOG_SECRETS = sa.table(
    "catalog_secrets",
    sa.column("catalog", sa.Text()),
    sa.column("sealed", sa.JSON(none_as_null=True)),
)


def upgrade() -> None:
    attributes = context.config.attributes
    seal: Seal = attributes["seal"]
    _shut_out_older_programs(attributes["secret_key"])
    _rename_columns()
    wanted = sa.Column("wanted_at_once", sa.Integer(), nullable=False, server_default=sa.text("0"))
    op.add_column("cleanups", wanted)
    once = sa.text("wanted_at_once = 1")
    op.create_index(
        "ix_cleanups_wanted",
        "cleanups",
        ["incarnation"],
        sqlite_where=once,
        postgresql_where=once,
    )
    conn = op.get_bind()
    _move_those_of_ended_jobs(conn)
    _seal_jobs(conn, seal)
    _seal_rows(conn, _CLEANUPS, _CLEANUPS.c.incarnation, seal)
    _seal_rows(conn, _CATALOG_SECRETS, _CATALOG_SECRETS.c.catalog, seal)


def _shut_out_older_programs(key_id: str) -> None:
    facts = sa.table("facts", sa.column("name"), sa.column("value"))
    oldest = sa.update(facts).where(facts.c.name == "oldest_program")
    op.execute(oldest.values(value=OLDEST_PROGRAM))
    op.execute(sa.insert(facts).values(name="secret_key", value=key_id))
    leases = sa.table("leases", sa.column("holder"), sa.column("epoch"))
    op.execute(sa.update(leases).values(holder="", epoch=leases.c.epoch + 1))


def _rename_columns() -> None:
    """Before anything is read: on PostgreSQL it waits for whoever is writing there, and nobody
    writes there from then on. After the lease is locked, which is what a leader locks first."""
    for table in (_JOB_SECRETS, _CLEANUPS, _CATALOG_SECRETS):
        op.execute(f"ALTER TABLE {table.name} RENAME COLUMN secrets TO sealed")


def _move_those_of_ended_jobs(conn: sa.Connection) -> None:
    """As the end of a job does from now on: the record takes those of its sinks."""
    ended = conn.execute(
        sa.select(_JOBS.c.id, _JOBS.c.incarnation, _JOBS.c.spec, _JOB_SECRETS.c.sealed)
        .join(_JOB_SECRETS, _JOB_SECRETS.c.job_id == _JOBS.c.id)
        .join(_CLEANUPS, _CLEANUPS.c.incarnation == _JOBS.c.incarnation)
        .where(_JOBS.c.ended_at_ms.is_not(None), _CLEANUPS.c.step == "STATE")
    ).all()
    for job_id, incarnation, spec, secrets in ended:
        pipelines: list[Any] = dict(spec or {}).get("pipelines", [])
        sinks = tuple(f"{sink['name']}." for p in pipelines for sink in p.get("sinks", ()))
        kept = {path: value for path, value in secrets.items() if path.startswith(sinks)}
        mine = _CLEANUPS.c.incarnation == incarnation
        conn.execute(sa.update(_CLEANUPS).where(mine).values(sealed=kept or None))
        conn.execute(sa.delete(_JOB_SECRETS).where(_JOB_SECRETS.c.job_id == job_id))


def _seal_jobs(conn: sa.Connection, seal: Seal) -> None:
    """Bound to the incarnation: the id may be another job's one day."""
    found = conn.execute(
        sa.select(_JOBS.c.id, _JOBS.c.incarnation, _JOB_SECRETS.c.sealed).join(
            _JOB_SECRETS, _JOB_SECRETS.c.job_id == _JOBS.c.id
        )
    ).all()
    for job_id, incarnation, secrets in found:
        mine = _JOB_SECRETS.c.job_id == job_id
        sealed = dict(seal("job_secrets", incarnation, secrets))
        conn.execute(sa.update(_JOB_SECRETS).where(mine).values(sealed=sealed))


def _seal_rows(conn: sa.Connection, table: sa.TableClause, key: Any, seal: Seal) -> None:
    for name, secrets in conn.execute(sa.select(key, table.c.sealed)).all():
        sealed = dict(seal(table.name, name, secrets)) if secrets else None
        if sealed is not None:
            conn.execute(sa.update(table).where(key == name).values(sealed=sealed))
        elif table is _CLEANUPS:
            conn.execute(sa.update(table).where(key == name).values(sealed=None))
        else:
            conn.execute(sa.delete(table).where(key == name))
