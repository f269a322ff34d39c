"""The schema of tasks and workers, with the conditions of its partial indexes."""

from __future__ import annotations

from sqlalchemy import (
    JSON,
    BigInteger,
    CheckConstraint,
    Column,
    ForeignKey,
    Index,
    Integer,
    Table,
    Text,
    text,
)

from headrace.model.task import ASSIGNED, ENDED, FailureCause, Lane, TaskKind, TaskStatus
from headrace.store.core.schema import metadata, partial_index, quoted_list

tasks = Table(
    "tasks",
    metadata,
    Column("id", Text, primary_key=True),
    Column("kind", Text, nullable=False),
    Column("lane", Text, nullable=False),
    Column("group_name", Text, nullable=False),
    Column("job_id", Text, ForeignKey("jobs.id")),
    Column("pipeline", Integer),
    Column("payload", JSON, nullable=False),
    Column("status", Text, nullable=False),
    Column("attempt", Integer, nullable=False, server_default=text("0")),
    # Errors that count; of a pipeline, those since an epoch with rows was last completed.
    Column("failures", Integer, nullable=False, server_default=text("0")),
    Column("stop", Integer, nullable=False, server_default=text("0")),  # its worker is to stop it
    Column("not_before_ms", BigInteger, nullable=False, server_default=text("0")),
    Column("worker_id", Text),
    Column("assigned_term", Integer),
    Column("assigned_number", Integer),  # the number of the answer that carried it
    Column("progress", JSON(none_as_null=True)),
    Column("result", JSON(none_as_null=True)),
    Column("error", Text),
    Column("created_at_ms", BigInteger, nullable=False),
    Column("scheduled_at_ms", BigInteger),
    Column("ended_at_ms", BigInteger),
    Column("pause_ms", BigInteger, nullable=False, server_default=text("0")),  # to not_before_ms
    Column("failed_at_ms", BigInteger),  # when an attempt last failed
    Column("table_id", Text),  # of a task for one table
    Column("process_id", Text),  # of its process, if it belongs to one
    Column("number", Integer),  # among the rewrite tasks of its process
    # 0: nobody may claim it before its table's share of the group allows it (`table_tasks.grant`).
    Column("granted", Integer, nullable=False, server_default=text("1")),
    Column("failure_cause", Text),  # of the attempt that failed last; `error` is its reason
    # Workers of a pipeline that were lost in a row, without a completed epoch in between.
    Column("losses", Integer, nullable=False, server_default=text("0")),
    # How often in a row it was assigned to a worker that never reported holding it.
    Column("unheard", Integer, nullable=False, server_default=text("0")),
    # The number of the last log line that coordinators wrote about it, like that of a job.
    Column("log_number", BigInteger, nullable=False, server_default=text("0")),
    # Its worker is to end it with a savepoint.
    Column("savepoint", Integer, nullable=False, server_default=text("0")),
    # The plug-ins that its worker must have (`model/jobs/needs`); NULL: none but what came with 4.
    Column("needs", Text),
    CheckConstraint(f"status IN {quoted_list(TaskStatus)}", name="status"),
    CheckConstraint(f"lane IN {quoted_list(Lane)}", name="lane"),
    CheckConstraint(f"kind IN {quoted_list(TaskKind)}", name="kind"),
    CheckConstraint(f"failure_cause IN {quoted_list(FailureCause)}", name="failure_cause"),
    CheckConstraint(
        f"(ended_at_ms IS NULL) = (status NOT IN {quoted_list(ENDED)})", name="ended_when_terminal"
    ),
    CheckConstraint(
        f"(worker_id IS NOT NULL) OR (status NOT IN {quoted_list(ASSIGNED)})",
        name="held_by_somebody",
    ),
    partial_index("ix_tasks_planned", "group_name", "lane", "id", where="status = 'PLANNED'"),
    partial_index("ix_tasks_assigned", "worker_id", where=f"status IN {quoted_list(ASSIGNED)}"),
    partial_index(
        "ix_tasks_open", "group_name", "lane", where=f"status NOT IN {quoted_list(ENDED)}"
    ),
    Index("ix_tasks_job_id", "job_id"),
    partial_index("ix_tasks_process_id", "process_id", where="process_id IS NOT NULL"),
    partial_index("ix_tasks_table_id", "table_id", where="table_id IS NOT NULL"),
)

workers = Table(
    "workers",
    metadata,
    Column("id", Text, primary_key=True),
    Column("group_name", Text, nullable=False),
    Column("slots", Integer, nullable=False),
    Column("control_slots", Integer, nullable=False),
    Column("version", Text, nullable=False),
    Column("host", Text, nullable=False),
    Column("pid", Integer, nullable=False),
    Column("spark_application", Text, nullable=False),
    Column("registered_at_ms", BigInteger, nullable=False),
    Column(
        "seen_at_ms", BigInteger, nullable=False
    ),  # for people; the leader keeps its own liveness
    Column("resource_id", Text),  # it was started for; NULL: it was started by hand
    Column("launch", Integer, nullable=False, server_default=text("0")),
    Column("memory_mb", Integer, nullable=False, server_default=text("0")),
    # Since when it drains, and is given no more tasks; 0: it does not drain.
    Column("drain_since_ms", BigInteger, nullable=False, server_default=text("0")),
    # The version of the protocol that it speaks. An older coordinator registers only those of 4.
    Column("protocol", Integer, nullable=False, server_default=text("4")),
    # The plug-ins that it has, as JSON, and a digest of that text: the hot path reads only the
    # digest. NULL: it did not say, and has those that came with protocol 4.
    Column("plugins", Text),
    Column("plugins_digest", Text),
    Index("ix_workers_group_name", "group_name"),
    Index("ix_workers_resource_id", "resource_id"),
)

# Conditions of the partial indexes, with their values written out: a query planner that sees a
# parameter instead can't know that the index holds all the rows.
PLANNED_TASK = text("tasks.status = 'PLANNED'")
ASSIGNED_TASK = text(f"tasks.status IN {quoted_list(ASSIGNED)}")
OPEN_TASK = text(f"tasks.status NOT IN {quoted_list(ENDED)}")
