"""The first schema: facts, lease, jobs, pipelines, epochs, tasks, workers.

Values of states are spelled out here, not taken from the model: a released revision stays as
it is when the model grows.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

JOB_STATES = (
    "('CANCELED', 'CANCELING', 'CREATED', 'DOING_SAVEPOINT', 'FAILED', 'FAILING', 'FINISHED', "
    "'INITIALIZING', 'PENDING', 'RUNNING', 'SAVEPOINT_DONE', 'SCHEDULED')"
)
JOB_ENDED = "('CANCELED', 'FAILED', 'FINISHED', 'SAVEPOINT_DONE')"
PIPELINE_STATES = (
    "('CANCELED', 'CANCELING', 'CREATED', 'DEPLOYING', 'FAILED', 'FAILING', 'FINISHED', "
    "'INITIALIZING', 'RUNNING', 'SCHEDULED')"
)
EPOCH_STATES = "('ABORTED', 'COMPLETED', 'PLANNED', 'PREPARED')"
TASK_STATES = "('ACKED', 'CANCELED', 'FAILED', 'PLANNED', 'SCHEDULED', 'SUCCESS')"
TASK_ENDED = "('CANCELED', 'FAILED', 'SUCCESS')"
TASK_ASSIGNED = "('ACKED', 'SCHEDULED')"
OLDEST_PROGRAM = "1"


def upgrade() -> None:
    _create_facts_and_leases()
    _create_jobs()
    _create_pipelines()
    _create_epochs()
    _create_tasks()
    _create_workers()


def _check(table: str, name: str, condition: str) -> sa.CheckConstraint:
    return sa.CheckConstraint(condition, name=op.f(f"ck_{table}_{name}"))


def _zero(name: str, kind: type[sa.Integer] = sa.Integer) -> sa.Column[int]:
    return sa.Column(name, kind(), server_default=sa.text("0"), nullable=False)


def _of_job(table: str) -> sa.ForeignKeyConstraint:
    return sa.ForeignKeyConstraint(["job_id"], ["jobs.id"], name=op.f(f"fk_{table}_job_id"))


def _create_partial_index(name: str, table: str, columns: list[str], *, where: str) -> None:
    op.create_index(
        name, table, columns, sqlite_where=sa.text(where), postgresql_where=sa.text(where)
    )


def _create_facts_and_leases() -> None:
    facts = op.create_table(
        "facts",
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("value", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("name", name=op.f("pk_facts")),
    )
    op.bulk_insert(facts, [{"name": "oldest_program", "value": OLDEST_PROGRAM}])
    op.create_table(
        "leases",
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("holder", sa.Text(), nullable=False),
        sa.Column("address", sa.Text(), nullable=False),
        sa.Column("epoch", sa.Integer(), nullable=False),
        sa.Column("renewals", sa.Integer(), nullable=False),
        sa.Column("hinted", sa.Integer(), nullable=False),
        sa.PrimaryKeyConstraint("name", name=op.f("pk_leases")),
        sa.UniqueConstraint("name", "epoch", name=op.f("uq_leases_name_epoch")),
    )


def _create_jobs() -> None:
    op.create_table(
        "jobs",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("incarnation", sa.Text(), nullable=False),
        sa.Column("submission_key", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("group_name", sa.Text(), nullable=False),
        sa.Column("spec", sa.JSON(), nullable=False),
        sa.Column("status", sa.Text(), nullable=False),
        sa.Column("waits_for", sa.Text()),
        sa.Column("error", sa.Text()),
        _zero("wanted_cancel"),
        sa.Column("created_at_ms", sa.BigInteger(), nullable=False),
        sa.Column("started_at_ms", sa.BigInteger()),
        sa.Column("ended_at_ms", sa.BigInteger()),
        _check("jobs", "status", f"status IN {JOB_STATES}"),
        _check(
            "jobs", "ended_when_terminal", f"(ended_at_ms IS NULL) = (status NOT IN {JOB_ENDED})"
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_jobs")),
        sa.UniqueConstraint("incarnation", name=op.f("uq_jobs_incarnation")),
        sa.UniqueConstraint("submission_key", name=op.f("uq_jobs_submission_key")),
    )
    _create_partial_index("ix_jobs_open", "jobs", ["id"], where=f"status NOT IN {JOB_ENDED}")
    op.create_table(
        "job_secrets",
        sa.Column("job_id", sa.Text(), nullable=False),
        sa.Column("secrets", sa.JSON(), nullable=False),
        _of_job("job_secrets"),
        sa.PrimaryKeyConstraint("job_id", name=op.f("pk_job_secrets")),
    )


def _create_pipelines() -> None:
    op.create_table(
        "pipelines",
        sa.Column("job_id", sa.Text(), nullable=False),
        sa.Column("number", sa.Integer(), nullable=False),
        sa.Column("status", sa.Text(), nullable=False),
        sa.Column("task_id", sa.Text()),
        _zero("epoch"),
        sa.Column("positions", sa.JSON(), nullable=False),
        _zero("rows_in", sa.BigInteger),
        _zero("rows_out", sa.BigInteger),
        sa.Column("commits", sa.JSON(), nullable=False),
        sa.Column("error", sa.Text()),
        _check("pipelines", "status", f"status IN {PIPELINE_STATES}"),
        _of_job("pipelines"),
        sa.PrimaryKeyConstraint("job_id", "number", name=op.f("pk_pipelines")),
    )


def _create_epochs() -> None:
    op.create_table(
        "epochs",
        sa.Column("incarnation", sa.Text(), nullable=False),
        sa.Column("pipeline", sa.Integer(), nullable=False),
        sa.Column("epoch", sa.Integer(), nullable=False),
        sa.Column("job_id", sa.Text(), nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("status", sa.Text(), nullable=False),
        sa.Column("plan", sa.JSON(), nullable=False),
        sa.Column("handles", sa.JSON()),
        sa.Column("execution", sa.Text(), nullable=False),
        sa.Column("rows_in", sa.BigInteger()),
        sa.Column("rows_out", sa.BigInteger()),
        sa.Column("planned_at_ms", sa.BigInteger(), nullable=False),
        sa.Column("prepared_at_ms", sa.BigInteger()),
        sa.Column("ended_at_ms", sa.BigInteger()),
        _check("epochs", "status", f"status IN {EPOCH_STATES}"),
        _check("epochs", "kind", "kind IN ('CHECKPOINT', 'COMPLETED')"),
        _check(
            "epochs",
            "ended_when_terminal",
            "(ended_at_ms IS NULL) = (status IN ('PLANNED', 'PREPARED'))",
        ),
        _of_job("epochs"),
        sa.PrimaryKeyConstraint("incarnation", "pipeline", "epoch", name=op.f("pk_epochs")),
    )
    op.create_index("ix_epochs_job_id", "epochs", ["job_id"])


def _create_tasks() -> None:
    op.create_table(
        "tasks",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("lane", sa.Text(), nullable=False),
        sa.Column("group_name", sa.Text(), nullable=False),
        sa.Column("job_id", sa.Text()),
        sa.Column("pipeline", sa.Integer()),
        sa.Column("payload", sa.JSON(), nullable=False),
        sa.Column("status", sa.Text(), nullable=False),
        _zero("attempt"),
        _zero("failures"),
        _zero("stop"),
        _zero("not_before_ms", sa.BigInteger),
        sa.Column("worker_id", sa.Text()),
        sa.Column("assigned_term", sa.Integer()),
        sa.Column("assigned_number", sa.Integer()),
        sa.Column("progress", sa.JSON()),
        sa.Column("result", sa.JSON()),
        sa.Column("error", sa.Text()),
        sa.Column("created_at_ms", sa.BigInteger(), nullable=False),
        sa.Column("scheduled_at_ms", sa.BigInteger()),
        sa.Column("ended_at_ms", sa.BigInteger()),
        *_task_constraints(),
    )
    _create_partial_index(
        "ix_tasks_planned", "tasks", ["group_name", "lane", "id"], where="status = 'PLANNED'"
    )
    _create_partial_index(
        "ix_tasks_assigned", "tasks", ["worker_id"], where=f"status IN {TASK_ASSIGNED}"
    )
    op.create_index("ix_tasks_job_id", "tasks", ["job_id"])


def _task_constraints() -> list[sa.Constraint]:
    return [
        _check("tasks", "status", f"status IN {TASK_STATES}"),
        _check("tasks", "lane", "lane IN ('CONTROL', 'SLOT')"),
        _check("tasks", "kind", "kind IN ('NOOP', 'PIPELINE', 'SETTLE')"),
        _check(
            "tasks",
            "ended_when_terminal",
            f"(ended_at_ms IS NULL) = (status NOT IN {TASK_ENDED})",
        ),
        _check(
            "tasks",
            "held_by_somebody",
            f"(worker_id IS NOT NULL) OR (status NOT IN {TASK_ASSIGNED})",
        ),
        _of_job("tasks"),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_tasks")),
    ]


def _create_workers() -> None:
    op.create_table(
        "workers",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("group_name", sa.Text(), nullable=False),
        sa.Column("slots", sa.Integer(), nullable=False),
        sa.Column("control_slots", sa.Integer(), nullable=False),
        sa.Column("version", sa.Text(), nullable=False),
        sa.Column("host", sa.Text(), nullable=False),
        sa.Column("pid", sa.Integer(), nullable=False),
        sa.Column("spark_application", sa.Text(), nullable=False),
        sa.Column("registered_at_ms", sa.BigInteger(), nullable=False),
        sa.Column("seen_at_ms", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_workers")),
    )
    op.create_index("ix_workers_group_name", "workers", ["group_name"])
