"""Log lines have an age of their own: they outlive the other rows of their job, and then expire.
Jobs and tasks remember the number of the last one that coordinators said of them.

A program before this one takes lines down without their time, and counts by those that are kept;
the leader's expiry makes up for the one, and whoever counts next for the other.
"""

from __future__ import annotations

import time

import sqlalchemy as sa
from alembic import op

revision = "0011"
down_revision = "0010"
branch_labels = None
depends_on = None


def upgrade() -> None:
    taken = sa.Column("taken_at_ms", sa.BigInteger(), nullable=False, server_default=sa.text("0"))
    op.add_column("job_logs", taken)
    # When its worker said it, by a clock that may be ahead by years: none is from after now.
    now_ms = sa.literal(time.time_ns() // 1_000_000, sa.BigInteger())
    lines = sa.table("job_logs", sa.column("taken_at_ms"), sa.column("at_ms"))
    earlier = sa.case((lines.c.at_ms < now_ms, lines.c.at_ms), else_=now_ms)
    op.execute(sa.update(lines).values(taken_at_ms=earlier))
    op.create_index("ix_job_logs_taken_at_ms", "job_logs", ["taken_at_ms"])
    for table in ("jobs", "tasks"):
        none = sa.Column("log_number", sa.BigInteger(), nullable=False, server_default=sa.text("0"))
        op.add_column(table, none)
