"""Several epochs a pipeline: who has read everything, savepoints, and rows written by sink."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None

_KINDS = "kind IN ('CHECKPOINT', 'COMPLETED', 'OPENING', 'SAVEPOINT')"


def upgrade() -> None:
    zero = sa.Column("wanted_savepoint", sa.Integer(), nullable=False, server_default=sa.text("0"))
    op.add_column("jobs", zero)
    op.add_column("jobs", sa.Column("restore_key", sa.Text()))
    op.create_index("ix_jobs_restore_key", "jobs", ["restore_key"], unique=True)
    none = sa.Column("written", sa.JSON(), nullable=False, server_default=sa.text("'{}'"))
    op.add_column("pipelines", none)
    op.add_column("tasks", sa.Column("failed_at_ms", sa.BigInteger()))
    with op.batch_alter_table("epochs") as epochs:
        epochs.drop_constraint(op.f("ck_epochs_kind"), type_="check")
        epochs.create_check_constraint(op.f("ck_epochs_kind"), _KINDS)
    op.create_table(
        "ready_sources",
        sa.Column("incarnation", sa.Text(), nullable=False),
        sa.Column("pipeline", sa.Integer(), nullable=False),
        sa.Column("source", sa.Text(), nullable=False),
        sa.Column("epoch", sa.Integer(), nullable=False),
        sa.PrimaryKeyConstraint("incarnation", "pipeline", "source", name="pk_ready_sources"),
    )
    op.create_table(
        "savepoints",
        sa.Column("incarnation", sa.Text(), nullable=False),
        sa.Column("job_id", sa.Text(), nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("epoch", sa.Integer(), nullable=False),
        sa.Column("positions", sa.JSON(), nullable=False),
        sa.Column("ready", sa.JSON(), nullable=False),
        sa.Column("written", sa.JSON(), nullable=False),
        sa.Column("made_at_ms", sa.BigInteger(), nullable=False),
        sa.CheckConstraint(_KINDS, name=op.f("ck_savepoints_kind")),
        sa.PrimaryKeyConstraint("incarnation", name="pk_savepoints"),
    )
    op.create_index("ix_savepoints_job_id", "savepoints", ["job_id"])
