"""The schema of jobs, their pipelines and epochs, and of what outlives a job."""

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

from headrace.model.jobs.epoch import CleanupStep, EpochKind, EpochStatus
from headrace.model.jobs.status import JOB_ENDED, JOB_WAITING, JobStatus, PipelineStatus
from headrace.store.core.schema import metadata, partial_index, quoted_list

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
    ),  # each restore begins another one
    # Its place in the line of its group: higher than that of every job that was there when it came,
    # whatever the clock says. 0: a program that did not know this column accepted it.
    Column("queue_number", BigInteger, nullable=False, server_default=text("0")),
    # The number of the last log line that coordinators wrote about it; lines may expire, it stays.
    Column("log_number", BigInteger, nullable=False, server_default=text("0")),
    # When a pass looks at it next; 0: at once. NULL: once somebody marks it (`due_jobs`).
    Column("due_at_ms", BigInteger, server_default=text("0")),
    # The plug-ins that its workers must have (`model/jobs/needs`); NULL: an older program accepted
    # it, which knew none but what came with protocol 4.
    Column("needs", Text),
    CheckConstraint(f"status IN {quoted_list(JobStatus)}", name="status"),
    CheckConstraint(
        f"(ended_at_ms IS NULL) = (status NOT IN {quoted_list(JOB_ENDED)})",
        name="ended_when_terminal",
    ),
    partial_index("ix_jobs_open", "id", where=f"status NOT IN {quoted_list(JOB_ENDED)}"),
    partial_index(
        "ix_jobs_due",
        "due_at_ms",
        "id",
        where=f"status NOT IN {quoted_list(JOB_ENDED)} AND due_at_ms IS NOT NULL",
    ),
    partial_index(
        "ix_jobs_waiting",
        *("group_name", "queue_number", "created_at_ms", "id"),
        where=f"status IN {quoted_list(JOB_WAITING)}",
    ),
    Index("ix_jobs_restore_key", "restore_key", unique=True),
    Index("ix_jobs_group_name_queue_number", "group_name", "queue_number"),
)

# Values of sensitive options, encrypted. Only an assignment reads them. The transaction that ends
# the job deletes them, and moves what the cleanup of its targets needs into the cleanup record.
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
    # The last completed one. -1: epoch 0 comes first, in which sinks do what their save modes say.
    Column("epoch", Integer, nullable=False, server_default=text("0")),
    Column("positions", JSON, nullable=False),
    Column("rows_in", BigInteger, nullable=False, server_default=text("0")),
    Column("rows_out", BigInteger, nullable=False, server_default=text("0")),
    Column("commits", JSON, nullable=False),  # by sink name, of the last epoch: table, snapshot
    Column("error", Text),
    Column("written", JSON, nullable=False, server_default=text("'{}'")),  # rows, by sink name
    Column("read", JSON, nullable=False, server_default=text("'{}'")),  # rows, by source name
    # The last one that was really completed, when a restore has put `epoch` above it. NULL: it is
    # `epoch`.
    Column("completed_epoch", Integer),
    # 1: something happened to it since a pass last looked at its job (`due_jobs`).
    Column("moved", Integer, nullable=False, server_default=text("0")),
    CheckConstraint(f"status IN {quoted_list(PipelineStatus)}", name="status"),
    partial_index("ix_pipelines_moved", "job_id", where="moved = 1"),
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
    # The execution that was last granted its plan; then prepared it, then completed it.
    Column("execution", Text, nullable=False),
    Column("rows_in", BigInteger),
    Column("rows_out", BigInteger),
    Column("planned_at_ms", BigInteger, nullable=False),
    Column("prepared_at_ms", BigInteger),
    Column("ended_at_ms", BigInteger),
    # Rows by source name, once it is prepared; without sources that were not counted.
    Column("read", JSON(none_as_null=True)),
    # The cause (see FailureCause) by id of the workers that were lost while it ran on them.
    Column("lost_on", JSON, nullable=False, server_default=text("'{}'")),
    CheckConstraint(f"status IN {quoted_list(EpochStatus)}", name="status"),
    CheckConstraint(f"kind IN {quoted_list(EpochKind)}", name="kind"),
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

# Where a stopped job can be restored. Savepoints outlive the job's other rows.
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
    CheckConstraint(f"kind IN {quoted_list(EpochKind)}", name="kind"),
    Index("ix_savepoints_job_id", "job_id"),
)

# What is to be deleted of a job that has ended. The transaction that ends the job writes it, and it
# stays until all is done (C3, C4).
cleanups = Table(
    "cleanups",
    metadata,
    Column("incarnation", Text, primary_key=True),  # its owner: another job may have the id by then
    Column("job_id", Text, nullable=False),
    Column("group_name", Text, nullable=False),  # whose workers can reach its targets
    Column("step", Text, nullable=False),
    Column("made_at_ms", BigInteger, nullable=False),
    Column("due_at_ms", BigInteger, nullable=False),  # of the step
    Column("targets_due_at_ms", BigInteger, nullable=False),  # by then nobody can commit any more
    Column("up_to", Integer, nullable=False, server_default=text("0")),  # its highest epoch
    # The job's targets, and how to reach them, once the job's own rows are gone.
    Column("spec", JSON(none_as_null=True)),
    # The secrets of its sinks, encrypted, once the job has ended. Only an assignment reads them.
    Column("sealed", JSON(none_as_null=True)),
    Column("task_id", Text),  # the last task that was planned for it
    Column("failures", Integer, nullable=False, server_default=text("0")),
    Column("error", Text),
    Column("wanted_at_once", Integer, nullable=False, server_default=text("0")),
    CheckConstraint(f"step IN {quoted_list(CleanupStep)}", name="step"),
    Index("ix_cleanups_due_at_ms", "due_at_ms"),
    Index("ix_cleanups_job_id", "job_id"),
    partial_index("ix_cleanups_wanted", "incarnation", where="wanted_at_once = 1"),
)

# How each run of a job ended. It is written with the end, and is all that is kept of most jobs.
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
    CheckConstraint(f"status IN {quoted_list(JOB_ENDED)}", name="status"),
    Index("ix_history_job_id", "job_id"),
    Index("ix_history_submission_key", "submission_key"),
    Index("ix_history_ended_at_ms", "ended_at_ms"),
)

# The last log lines of each job, from its workers and from the coordinators. They outlive the job's
# other rows.
job_logs = Table(
    "job_logs",
    metadata,
    Column("incarnation", Text, primary_key=True),
    Column("source", Text, primary_key=True),  # a worker's id, or `coordinator`
    Column(
        "number", BigInteger, primary_key=True
    ),  # by source, so that a line sent twice is kept once
    Column("job_id", Text, nullable=False),
    Column("at_ms", BigInteger, nullable=False),
    Column("level", Text, nullable=False),
    Column("text", Text, nullable=False),
    # On the leader's clock, by which lines expire: a worker's clock may be wrong by years.
    Column("taken_at_ms", BigInteger, nullable=False, server_default=text("0")),
    Index("ix_job_logs_incarnation_at_ms", "incarnation", "at_ms"),
    Index("ix_job_logs_taken_at_ms", "taken_at_ms"),
)
# Conditions of the partial indexes, with their values written out for the query planner.
WANTED_CLEANUP = text("cleanups.wanted_at_once = 1")
OPEN_JOB = text(f"jobs.status NOT IN {quoted_list(JOB_ENDED)}")
TIMED_JOB = text(f"jobs.status NOT IN {quoted_list(JOB_ENDED)} AND jobs.due_at_ms IS NOT NULL")
WAITING_JOB = text(f"jobs.status IN {quoted_list(JOB_WAITING)}")
MOVED_PIPELINE = text("pipelines.moved = 1")
