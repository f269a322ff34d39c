"""Why an attempt failed, how many workers were lost in a row, and on which of them an epoch ran."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"
branch_labels = None
depends_on = None

_CAUSES = "failure_cause IN ('ERROR', 'KILLED', 'LOST', 'OUT_OF_MEMORY', 'STORE_OLDER', 'UNTOLD')"


def upgrade() -> None:
    lost_on = sa.Column("lost_on", sa.JSON(), nullable=False, server_default=sa.text("'{}'"))
    op.add_column("epochs", lost_on)
    op.add_column("tasks", sa.Column("failure_cause", sa.Text()))
    losses = sa.Column("losses", sa.Integer(), nullable=False, server_default=sa.text("0"))
    op.add_column("tasks", losses)
    unheard = sa.Column("unheard", sa.Integer(), nullable=False, server_default=sa.text("0"))
    op.add_column("tasks", unheard)
    # Lost workers were counted as errors: whichever these were, they don't count any more.
    op.execute("UPDATE tasks SET failures = 0 WHERE kind = 'PIPELINE' AND ended_at_ms IS NULL")
    with op.batch_alter_table("tasks") as tasks:
        tasks.create_check_constraint(op.f("ck_tasks_failure_cause"), _CAUSES)
