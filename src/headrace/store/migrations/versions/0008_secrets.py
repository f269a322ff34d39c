"""Secrets are encrypted, and those of an ended job's sources go with its end.

Programs before it would hand what is encrypted to workers, and write in clear: none of them may
lead any more. The key comes with the configuration: its id, and what encrypts a value for a row.
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
_SECRETS = sa.column("secrets", sa.JSON(none_as_null=True))
_JOB_SECRETS = sa.table("job_secrets", sa.column("job_id", sa.Text()), _SECRETS)
_CLEANUPS = sa.table(
    "cleanups",
    sa.column("incarnation", sa.Text()),
    sa.column("step", sa.Text()),
    sa.column("secrets", sa.JSON(none_as_null=True)),
)
_CATALOG_SECRETS = sa.table(
    "catalog_secrets",
    sa.column("catalog", sa.Text()),
    sa.column("secrets", sa.JSON(none_as_null=True)),
)


def upgrade() -> None:
    attributes = context.config.attributes
    seal: Seal = attributes["seal"]
    _shut_out_older_programs(attributes["secret_key"])
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


def _move_those_of_ended_jobs(conn: sa.Connection) -> None:
    """As the end of a job does from now on: the record takes those of its sinks."""
    ended = conn.execute(
        sa.select(_JOBS.c.id, _JOBS.c.incarnation, _JOBS.c.spec, _JOB_SECRETS.c.secrets)
        .join(_JOB_SECRETS, _JOB_SECRETS.c.job_id == _JOBS.c.id)
        .join(_CLEANUPS, _CLEANUPS.c.incarnation == _JOBS.c.incarnation)
        .where(_JOBS.c.ended_at_ms.is_not(None), _CLEANUPS.c.step == "STATE")
    ).all()
    for job_id, incarnation, spec, secrets in ended:
        pipelines: list[Any] = dict(spec or {}).get("pipelines", [])
        sinks = tuple(f"{sink['name']}." for p in pipelines for sink in p.get("sinks", ()))
        kept = {path: value for path, value in secrets.items() if path.startswith(sinks)}
        mine = _CLEANUPS.c.incarnation == incarnation
        conn.execute(sa.update(_CLEANUPS).where(mine).values(secrets=kept or None))
        conn.execute(sa.delete(_JOB_SECRETS).where(_JOB_SECRETS.c.job_id == job_id))


def _seal_jobs(conn: sa.Connection, seal: Seal) -> None:
    """Bound to the incarnation: the id may be another job's one day."""
    found = conn.execute(
        sa.select(_JOBS.c.id, _JOBS.c.incarnation, _JOB_SECRETS.c.secrets).join(
            _JOB_SECRETS, _JOB_SECRETS.c.job_id == _JOBS.c.id
        )
    ).all()
    for job_id, incarnation, secrets in found:
        mine = _JOB_SECRETS.c.job_id == job_id
        sealed = dict(seal("job_secrets", incarnation, secrets))
        conn.execute(sa.update(_JOB_SECRETS).where(mine).values(secrets=sealed))


def _seal_rows(conn: sa.Connection, table: sa.TableClause, key: Any, seal: Seal) -> None:
    for name, secrets in conn.execute(sa.select(key, table.c.secrets)).all():
        sealed = dict(seal(table.name, name, secrets)) if secrets else None
        if sealed is not None:
            conn.execute(sa.update(table).where(key == name).values(secrets=sealed))
        elif table is _CLEANUPS:
            conn.execute(sa.update(table).where(key == name).values(secrets=None))
        else:
            conn.execute(sa.delete(table).where(key == name))
