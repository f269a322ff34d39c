"""The lease keeps what time its leader counted by, how far that was from its wall clock, and when
that was last set ahead. Jobs have a place in the queue, which no clock changes.

A job that a program before this one still accepts has no place, and goes first.
"""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "0009"
down_revision = "0008"
branch_labels = None
depends_on = None


def upgrade() -> None:
    for name in ("clock_ms", "offset_ms", "set_ahead_at_ms"):
        none = sa.Column(name, sa.BigInteger(), nullable=False, server_default=sa.text("0"))
        op.add_column("leases", none)
    place = sa.Column("queue_number", sa.BigInteger(), nullable=False, server_default=sa.text("0"))
    op.add_column("jobs", place)
    _number_open_jobs()
    op.create_index("ix_jobs_queue_number", "jobs", ["queue_number"])


def _number_open_jobs() -> None:
    """In the order in which they would have been admitted so far."""
    names = ("id", "created_at_ms", "ended_at_ms", "queue_number")
    columns: list[sa.ColumnClause[Any]] = [sa.column(name) for name in names]
    jobs = sa.table("jobs", *columns)
    in_order = sa.select(jobs.c.id).where(jobs.c.ended_at_ms.is_(None))
    ids = op.get_bind().execute(in_order.order_by(jobs.c.created_at_ms, jobs.c.id)).scalars().all()
    numbered = sa.update(jobs).where(jobs.c.id == sa.bindparam("of"))
    for number, job_id in enumerate(ids, start=1):
        op.get_bind().execute(numbered.values(queue_number=number), {"of": job_id})
