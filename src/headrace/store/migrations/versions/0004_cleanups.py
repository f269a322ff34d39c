"""The end of a job: cleanups, history and logs; savepoints that outlive the job's rows.

Programs before it can't read a FORGET task, and end jobs without a record of it: none of them may
lead any more.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None

_KINDS = "kind IN ('FORGET', 'NOOP', 'PIPELINE', 'SETTLE')"
_ENDED = "status IN ('CANCELED', 'FAILED', 'FINISHED', 'SAVEPOINT_DONE')"


OLDEST_PROGRAM = "2"


def upgrade() -> None:
    _shut_out_older_programs()
    one = sa.Column("run", sa.Integer(), nullable=False, server_default=sa.text("1"))
    op.add_column("jobs", one)
    with op.batch_alter_table("tasks") as tasks:
        tasks.drop_constraint(op.f("ck_tasks_kind"), type_="check")
        tasks.create_check_constraint(op.f("ck_tasks_kind"), _KINDS)
    _widen_savepoints()
    _make_cleanups()
    _make_history()
    op.create_table(
        "job_logs",
        sa.Column("incarnation", sa.Text(), nullable=False),
        sa.Column("source", sa.Text(), nullable=False),
        sa.Column("number", sa.BigInteger(), nullable=False),
        sa.Column("job_id", sa.Text(), nullable=False),
        sa.Column("at_ms", sa.BigInteger(), nullable=False),
        sa.Column("level", sa.Text(), nullable=False),
        sa.Column("text", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("incarnation", "source", "number", name="pk_job_logs"),
    )
    op.create_index("ix_job_logs_incarnation_at_ms", "job_logs", ["incarnation", "at_ms"])


def _shut_out_older_programs() -> None:
    facts = sa.table("facts", sa.column("name"), sa.column("value"))
    oldest = sa.update(facts).where(facts.c.name == "oldest_program")
    op.execute(oldest.values(value=OLDEST_PROGRAM))
    leases = sa.table("leases", sa.column("holder"), sa.column("epoch"))
    op.execute(sa.update(leases).values(holder="", epoch=leases.c.epoch + 1))


def _widen_savepoints() -> None:
    """A savepoint says all that a restore asks for. Those of older jobs still have the job."""
    empty, none, nobody = sa.text("'{}'"), sa.text("'[]'"), sa.text("''")
    for column in (
        sa.Column("name", sa.Text(), nullable=False, server_default=nobody),
        sa.Column("group_name", sa.Text(), nullable=False, server_default=nobody),
        sa.Column("run", sa.Integer(), nullable=False, server_default=sa.text("1")),
        sa.Column("spec", sa.JSON(), nullable=False, server_default=empty),
        sa.Column("pipelines", sa.JSON(), nullable=False, server_default=none),
    ):
        op.add_column("savepoints", column)


def _make_cleanups() -> None:
    op.create_table(
        "cleanups",
        sa.Column("incarnation", sa.Text(), nullable=False),
        sa.Column("job_id", sa.Text(), nullable=False),
        sa.Column("group_name", sa.Text(), nullable=False),
        sa.Column("step", sa.Text(), nullable=False),
        sa.Column("made_at_ms", sa.BigInteger(), nullable=False),
        sa.Column("due_at_ms", sa.BigInteger(), nullable=False),
        sa.Column("targets_due_at_ms", sa.BigInteger(), nullable=False),
        sa.Column("up_to", sa.Integer(), nullable=False, server_default=sa.text("0")),
        sa.Column("spec", sa.JSON(none_as_null=True)),
        sa.Column("secrets", sa.JSON(none_as_null=True)),
        sa.Column("task_id", sa.Text()),
        sa.Column("failures", sa.Integer(), nullable=False, server_default=sa.text("0")),
        sa.Column("error", sa.Text()),
        sa.CheckConstraint("step IN ('STATE', 'TARGETS')", name=op.f("ck_cleanups_step")),
        sa.PrimaryKeyConstraint("incarnation", name="pk_cleanups"),
    )
    op.create_index("ix_cleanups_due_at_ms", "cleanups", ["due_at_ms"])
    op.create_index("ix_cleanups_job_id", "cleanups", ["job_id"])


def _make_history() -> None:
    op.create_table(
        "history",
        sa.Column("incarnation", sa.Text(), nullable=False),
        sa.Column("run", sa.Integer(), nullable=False),
        sa.Column("job_id", sa.Text(), nullable=False),
        sa.Column("submission_key", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("group_name", sa.Text(), nullable=False),
        sa.Column("status", sa.Text(), nullable=False),
        sa.Column("error", sa.Text()),
        sa.Column("created_at_ms", sa.BigInteger(), nullable=False),
        sa.Column("started_at_ms", sa.BigInteger()),
        sa.Column("ended_at_ms", sa.BigInteger(), nullable=False),
        sa.Column("spec", sa.JSON(), nullable=False),
        sa.Column("pipelines", sa.JSON(), nullable=False),
        sa.CheckConstraint(_ENDED, name=op.f("ck_history_status")),
        sa.PrimaryKeyConstraint("incarnation", "run", name="pk_history"),
    )
    op.create_index("ix_history_job_id", "history", ["job_id"])
    op.create_index("ix_history_submission_key", "history", ["submission_key"])
    op.create_index("ix_history_ended_at_ms", "history", ["ended_at_ms"])
