"""When a pass looks at a job: once it is marked, or at its time. All old jobs are due at once."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0015"
down_revision = "0014"
branch_labels = None
depends_on = None

OPEN_JOB = "status NOT IN ('CANCELED', 'FAILED', 'FINISHED', 'SAVEPOINT_DONE')"
DUE = f"{OPEN_JOB} AND due_at_ms IS NOT NULL"
WAITING = "status IN ('CREATED', 'PENDING')"
OPEN_TASK = "status NOT IN ('CANCELED', 'FAILED', 'SUCCESS')"


def upgrade() -> None:
    op.add_column("jobs", sa.Column("due_at_ms", sa.BigInteger(), server_default=sa.text("0")))
    op.add_column(
        "pipelines",
        sa.Column("moved", sa.Integer(), nullable=False, server_default=sa.text("0")),
    )
    _add_partial("ix_jobs_due", "jobs", ["due_at_ms", "id"], DUE)
    place = ["group_name", "queue_number", "created_at_ms", "id"]
    _add_partial("ix_jobs_waiting", "jobs", place, WAITING)
    # With an index by the number alone, the planner looks for those that wait among all that came
    # before them.
    op.create_index("ix_jobs_group_name_queue_number", "jobs", ["group_name", "queue_number"])
    op.drop_index("ix_jobs_queue_number", "jobs")
    _add_partial("ix_pipelines_moved", "pipelines", ["job_id"], "moved = 1")
    _add_partial("ix_tasks_open", "tasks", ["group_name", "lane"], OPEN_TASK)


def _add_partial(name: str, table: str, columns: list[str], where: str) -> None:
    condition = sa.text(where)
    op.create_index(name, table, columns, sqlite_where=condition, postgresql_where=condition)
