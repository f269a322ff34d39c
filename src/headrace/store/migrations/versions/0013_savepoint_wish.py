"""That a task is to end with a savepoint is a column, and no longer hides in its payload.

A program before this one would neither see the wish nor make it seen: the job would wait for its
savepoint for ever. So it may not lead any more.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0013"
down_revision = "0012"
branch_labels = None
depends_on = None

OLDEST_PROGRAM = "5"


def upgrade() -> None:
    _shut_out_older_programs()
    wish = sa.Column("savepoint", sa.Integer(), nullable=False, server_default=sa.text("0"))
    op.add_column("tasks", wish)
    _move_wishes()


def _shut_out_older_programs() -> None:
    facts = sa.table("facts", sa.column("name"), sa.column("value"))
    oldest = sa.update(facts).where(facts.c.name == "oldest_program")
    op.execute(oldest.values(value=OLDEST_PROGRAM))
    leases = sa.table("leases", sa.column("holder"), sa.column("epoch"))
    op.execute(sa.update(leases).values(holder="", epoch=leases.c.epoch + 1))


def _move_wishes() -> None:
    """Of open tasks: the others have ended, one way or another."""
    tasks = sa.table(
        "tasks",
        sa.column("id", sa.Text()),
        sa.column("payload", sa.JSON()),
        sa.column("savepoint", sa.Integer()),
        sa.column("ended_at_ms", sa.BigInteger()),
        sa.column("kind", sa.Text()),
    )
    mine = (tasks.c.kind == "PIPELINE", tasks.c.ended_at_ms.is_(None))
    conn = op.get_bind()
    for task, payload in conn.execute(sa.select(tasks.c.id, tasks.c.payload).where(*mine)).all():
        if "savepoint" in payload:
            kept = {name: value for name, value in payload.items() if name != "savepoint"}
            moved = sa.update(tasks).where(tasks.c.id == task)
            conn.execute(moved.values(payload=kept, savepoint=1))
