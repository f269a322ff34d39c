"""The tables of the store. Names are plural nouns; every time is epoch milliseconds.

Columns are of two kinds. What is *wanted* is written by commands, on any node. What *is* is
written only under a term, or under the claim of an execution. `wanted_*` columns are the first.
Log lines are neither, nor is the number of a job's last one: any node says that a job is wanted to
end, and nothing is decided by it.
"""

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
    UniqueConstraint,
    text,
)

from headrace.model.cleanup import CleanupStep
from headrace.model.epoch import EpochKind, EpochStatus
from headrace.model.job import JOB_ENDED, JobStatus, PipelineStatus
from headrace.model.task import ASSIGNED, ENDED, FailureCause, Lane, TaskKind, TaskStatus
from headrace.store.naming import metadata, one_of, partial_index

# What the store says about itself: its id, the id of its secrets' key, and the oldest program that
# may write to it (L4).
facts = Table(
    "facts",
    metadata,
    Column("name", Text, primary_key=True),
    Column("value", Text, nullable=False),
)

leases = Table(
    "leases",
    metadata,
    Column("name", Text, primary_key=True),
    Column("holder", Text, nullable=False),  # host:pid:start-time; empty when resigned
    Column("address", Text, nullable=False),  # where the holder answers
    Column("epoch", Integer, nullable=False),
    Column("renewals", Integer, nullable=False),
    # Whether the holder had the take-over hint: only then does a free hint mean that it is dead.
    Column("hinted", Integer, nullable=False),
    # The leader's time when it last renewed, and by how much that is ahead of its wall clock.
    Column("clock_ms", BigInteger, nullable=False, server_default=text("0")),  # 0: never told
    Column("offset_ms", BigInteger, nullable=False, server_default=text("0")),
    # When a leader last found its clock set ahead: what looks old then need not be. 0: never.
    Column("set_ahead_at_ms", BigInteger, nullable=False, server_default=text("0")),
    # Makes `epoch` a key column: a takeover waits for FOR KEY SHARE, a renewal does not.
    UniqueConstraint("name", "epoch"),
)

jobs = Table(
    "jobs",
    metadata,
    Column("id", Text, primary_key=True),
    Column("incarnation", Text, nullable=False, unique=True),
    Column("submission_key", Text, nullable=False, unique=True),
    Column("name", Text, nullable=False),
    Column("group_name", Text, nullable=False),
    Column("spec", JSON, nullable=False),  # without secrets
    Column("status", Text, nullable=False),
    Column("waits_for", Text),
    Column("error", Text),
    Column("wanted_cancel", Integer, nullable=False, server_default=text("0")),
    Column("wanted_savepoint", Integer, nullable=False, server_default=text("0")),
    Column("created_at_ms", BigInteger, nullable=False),
    Column("started_at_ms", BigInteger),
    Column("ended_at_ms", BigInteger),
    Column("restore_key", Text),  # of the last restore; the first submission keeps its own (C6)
    Column(
        "run", Integer, nullable=False, server_default=text("1")
    ),  # each restore is a further one
    # Its place in the queue: higher than that of every job that was there when it came. A clock
    # that is set changes none of it. 0: a program accepted it that did not know of it.
    Column("queue_number", BigInteger, nullable=False, server_default=text("0")),
    # Of the last log line that coordinators said of it: it counts on when all of them have expired.
    Column("log_number", BigInteger, nullable=False, server_default=text("0")),
    CheckConstraint(f"status IN {one_of(JobStatus)}", name="status"),
    CheckConstraint(
        f"(ended_at_ms IS NULL) = (status NOT IN {one_of(JOB_ENDED)})", name="ended_when_terminal"
    ),
    partial_index("ix_jobs_open", "id", where=f"status NOT IN {one_of(JOB_ENDED)}"),
    Index("ix_jobs_restore_key", "restore_key", unique=True),
    Index("ix_jobs_queue_number", "queue_number"),
)

# Values of sensitive options, encrypted. Nothing reads this but an assignment; the transaction that
# ends the job deletes it, and what cleaning its targets needs moves into the cleanup record.
job_secrets = Table(
    "job_secrets",
    metadata,
    Column("job_id", Text, ForeignKey("jobs.id"), primary_key=True),
    Column("sealed", JSON, nullable=False),
)

pipelines = Table(
    "pipelines",
    metadata,
    Column("job_id", Text, ForeignKey("jobs.id"), primary_key=True),
    Column("number", Integer, primary_key=True),
    Column("status", Text, nullable=False),
    Column("task_id", Text),
    # The last completed one. -1: epoch 0 is to come, in which sinks do what their save modes ask.
    Column("epoch", Integer, nullable=False, server_default=text("0")),
    Column("positions", JSON, nullable=False),
    Column("rows_in", BigInteger, nullable=False, server_default=text("0")),
    Column("rows_out", BigInteger, nullable=False, server_default=text("0")),
    Column("commits", JSON, nullable=False),  # by sink name, of the last epoch: table, snapshot
    Column("error", Text),
    Column("written", JSON, nullable=False, server_default=text("'{}'")),  # rows, by sink name
    Column("read", JSON, nullable=False, server_default=text("'{}'")),  # rows, by source name
    # The last one that really was completed, where a restore has put `epoch` above it. NULL: it is
    # `epoch`.
    Column("completed_epoch", Integer),
    CheckConstraint(f"status IN {one_of(PipelineStatus)}", name="status"),
)

epochs = Table(
    "epochs",
    metadata,
    Column("incarnation", Text, primary_key=True),
    Column("pipeline", Integer, primary_key=True),
    Column("epoch", Integer, primary_key=True),
    Column("job_id", Text, ForeignKey("jobs.id"), nullable=False),
    Column("kind", Text, nullable=False),
    Column("status", Text, nullable=False),
    Column("plan", JSON, nullable=False),
    Column("handles", JSON(none_as_null=True)),
    # That was last granted its plan, then prepared, then completed it.
    Column("execution", Text, nullable=False),
    Column("rows_in", BigInteger),
    Column("rows_out", BigInteger),
    Column("planned_at_ms", BigInteger, nullable=False),
    Column("prepared_at_ms", BigInteger),
    Column("ended_at_ms", BigInteger),
    # Rows by source name, from when it is prepared; a source that was not counted is not in it.
    Column("read", JSON(none_as_null=True)),
    # Workers that were lost while it was running on them, by id: the cause (see FailureCause).
    Column("lost_on", JSON, nullable=False, server_default=text("'{}'")),
    CheckConstraint(f"status IN {one_of(EpochStatus)}", name="status"),
    CheckConstraint(f"kind IN {one_of(EpochKind)}", name="kind"),
    CheckConstraint(
        "(ended_at_ms IS NULL) = (status IN ('PLANNED', 'PREPARED'))", name="ended_when_terminal"
    ),
    Index("ix_epochs_job_id", "job_id"),
)

# A bounded source that has read everything: its last slice is read and prepared (K1).
ready_sources = Table(
    "ready_sources",
    metadata,
    Column("incarnation", Text, primary_key=True),
    Column("pipeline", Integer, primary_key=True),
    Column("source", Text, primary_key=True),
    Column("epoch", Integer, nullable=False),  # in which it was prepared
)

# Where a stopped job can be restored: it outlives the job's other rows.
savepoints = Table(
    "savepoints",
    metadata,
    Column("incarnation", Text, primary_key=True),
    Column("job_id", Text, nullable=False),
    Column("kind", Text, nullable=False),  # SAVEPOINT, or the last CHECKPOINT of a failed job
    Column("epoch", Integer, nullable=False),  # the highest of any of its pipelines
    Column("positions", JSON, nullable=False),  # by source name
    Column("ready", JSON, nullable=False),  # names of sources that have read everything
    Column("written", JSON, nullable=False),  # rows, by sink name
    Column("made_at_ms", BigInteger, nullable=False),
    Column("name", Text, nullable=False, server_default=text("''")),
    Column("group_name", Text, nullable=False, server_default=text("''")),
    Column("run", Integer, nullable=False, server_default=text("1")),
    Column("spec", JSON, nullable=False, server_default=text("'{}'")),  # without secrets
    Column("pipelines", JSON, nullable=False, server_default=text("'[]'")),  # as they ended
    CheckConstraint(f"kind IN {one_of(EpochKind)}", name="kind"),
    Index("ix_savepoints_job_id", "job_id"),
)

# What is to be deleted of a job that has ended. Written with its end, by the same transaction;
# it stays until all of it is done (C3, C4).
cleanups = Table(
    "cleanups",
    metadata,
    Column("incarnation", Text, primary_key=True),  # the owner: the id may be another's by then
    Column("job_id", Text, nullable=False),
    Column("group_name", Text, nullable=False),  # whose workers can reach its targets
    Column("step", Text, nullable=False),
    Column("made_at_ms", BigInteger, nullable=False),
    Column("due_at_ms", BigInteger, nullable=False),  # of the step
    Column("targets_due_at_ms", BigInteger, nullable=False),  # nobody can commit any more by then
    Column("up_to", Integer, nullable=False, server_default=text("0")),  # its highest epoch
    # Of the job, from when its own rows are gone: what its targets are, and how to reach them.
    Column("spec", JSON(none_as_null=True)),
    # Of its sinks, encrypted, from the end of the job on; nothing reads this but an assignment.
    Column("sealed", JSON(none_as_null=True)),
    Column("task_id", Text),  # the last task that was planned for it
    Column("failures", Integer, nullable=False, server_default=text("0")),
    Column("error", Text),
    Column("wanted_at_once", Integer, nullable=False, server_default=text("0")),
    CheckConstraint(f"step IN {one_of(CleanupStep)}", name="step"),
    Index("ix_cleanups_due_at_ms", "due_at_ms"),
    Index("ix_cleanups_job_id", "job_id"),
    partial_index("ix_cleanups_wanted", "incarnation", where="wanted_at_once = 1"),
)

# How each run of a job ended. Written with its end; the only thing that is left of most jobs.
history = Table(
    "history",
    metadata,
    Column("incarnation", Text, primary_key=True),
    Column("run", Integer, primary_key=True),
    Column("job_id", Text, nullable=False),
    Column("submission_key", Text, nullable=False),  # of this run: the same key, the same job (C6)
    Column("name", Text, nullable=False),
    Column("group_name", Text, nullable=False),
    Column("status", Text, nullable=False),
    Column("error", Text),
    Column("created_at_ms", BigInteger, nullable=False),
    Column("started_at_ms", BigInteger),
    Column("ended_at_ms", BigInteger, nullable=False),
    Column("spec", JSON, nullable=False),  # without secrets
    Column("pipelines", JSON, nullable=False),  # as they ended: status, epoch, rows, commits, error
    CheckConstraint(f"status IN {one_of(JOB_ENDED)}", name="status"),
    Index("ix_history_job_id", "job_id"),
    Index("ix_history_submission_key", "submission_key"),
    Index("ix_history_ended_at_ms", "ended_at_ms"),
)

# What was said while a job ran, by its workers and by the leader; the last lines of each. They
# outlive the job's other rows.
job_logs = Table(
    "job_logs",
    metadata,
    Column("incarnation", Text, primary_key=True),
    Column("source", Text, primary_key=True),  # a worker's id; of the leader, `coordinator`
    Column(
        "number", BigInteger, primary_key=True
    ),  # the source counts: said twice, it is kept once
    Column("job_id", Text, nullable=False),
    Column("at_ms", BigInteger, nullable=False),
    Column("level", Text, nullable=False),
    Column("text", Text, nullable=False),
    # On the leader's clock, by which they expire: that of a worker may be wrong by years.
    Column("taken_at_ms", BigInteger, nullable=False, server_default=text("0")),
    Index("ix_job_logs_incarnation_at_ms", "incarnation", "at_ms"),
    Index("ix_job_logs_taken_at_ms", "taken_at_ms"),
)

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
    # That count: of a pipeline, errors since an epoch with rows was last completed.
    Column("failures", Integer, nullable=False, server_default=text("0")),
    Column("stop", Integer, nullable=False, server_default=text("0")),  # its worker is to stop it
    Column("not_before_ms", BigInteger, nullable=False, server_default=text("0")),
    Column("worker_id", Text),
    Column("assigned_term", Integer),
    Column("assigned_number", Integer),  # of the answer that carried it
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
    # 0: it waits for its table's share of the group; nobody may claim it before (see grants).
    Column("granted", Integer, nullable=False, server_default=text("1")),
    Column("failure_cause", Text),  # of the attempt that failed last; `error` is its reason
    # Workers of a pipeline that were lost in a row, without a completed epoch in between.
    Column("losses", Integer, nullable=False, server_default=text("0")),
    # So often in a row it was given to a worker that did not say that it holds it.
    Column("unheard", Integer, nullable=False, server_default=text("0")),
    # Of the last log line that coordinators said of it, as that of a job.
    Column("log_number", BigInteger, nullable=False, server_default=text("0")),
    CheckConstraint(f"status IN {one_of(TaskStatus)}", name="status"),
    CheckConstraint(f"lane IN {one_of(Lane)}", name="lane"),
    CheckConstraint(f"kind IN {one_of(TaskKind)}", name="kind"),
    CheckConstraint(f"failure_cause IN {one_of(FailureCause)}", name="failure_cause"),
    CheckConstraint(
        f"(ended_at_ms IS NULL) = (status NOT IN {one_of(ENDED)})", name="ended_when_terminal"
    ),
    CheckConstraint(
        f"(worker_id IS NOT NULL) OR (status NOT IN {one_of(ASSIGNED)})", name="held_by_somebody"
    ),
    partial_index("ix_tasks_planned", "group_name", "lane", "id", where="status = 'PLANNED'"),
    partial_index("ix_tasks_assigned", "worker_id", where=f"status IN {one_of(ASSIGNED)}"),
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
    Column("seen_at_ms", BigInteger, nullable=False),  # for people; the leader counts for itself
    Column("resource_id", Text),  # what it was started for; NULL: somebody started it by hand
    Column("launch", Integer, nullable=False, server_default=text("0")),
    Column("memory_mb", Integer, nullable=False, server_default=text("0")),
    # Since when it is wanted gone, and given nothing more; 0: it is not.
    Column("drain_since_ms", BigInteger, nullable=False, server_default=text("0")),
    Index("ix_workers_group_name", "group_name"),
    Index("ix_workers_resource_id", "resource_id"),
)

# Conditions of the partial indexes, with their values written out: a planner that sees a
# parameter instead can't know that the index holds all the rows.
PLANNED_TASK = text("tasks.status = 'PLANNED'")
ASSIGNED_TASK = text(f"tasks.status IN {one_of(ASSIGNED)}")
WANTED_CLEANUP = text("cleanups.wanted_at_once = 1")
OPEN_JOB = text(f"jobs.status NOT IN {one_of(JOB_ENDED)}")
