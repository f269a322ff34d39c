"""The schema of lake tables: catalogs, the tables in them, their processes and blockers.

`lake_tables` has one row for each table of each catalog. Its wide columns (clocks, summary, pending
input) are read only where they are needed: a pass reads many rows.
"""

from __future__ import annotations

from sqlalchemy import (
    JSON,
    BigInteger,
    CheckConstraint,
    Column,
    Float,
    ForeignKey,
    Index,
    Integer,
    Table,
    Text,
    UniqueConstraint,
    text,
)

from headrace.model.tables.status import (
    PROCESS_ENDED,
    OptimizingType,
    ProcessStatus,
    TableErrorKind,
    TableStatus,
)
from headrace.store.core.schema import metadata, partial_index, quoted_list

catalogs = Table(
    "catalogs",
    metadata,
    Column("name", Text, primary_key=True),
    Column("type", Text, nullable=False),  # jdbc, rest, hive, glue, hadoop; or embedded
    Column("properties", JSON, nullable=False),  # without secrets
    Column("defaults", JSON, nullable=False),  # table properties that its tables have by default
    Column("table_filter", Text),  # a regular expression on namespace.table; others are left alone
    Column("group_name", Text, nullable=False),  # whose workers can reach it
    Column("created_at_ms", BigInteger, nullable=False),
    Column("wanted_removed", Integer, nullable=False, server_default=text("0")),
    Column("due_at_ms", BigInteger, nullable=False),  # of the next discovery
    Column("task_id", Text),  # of the discovery that is under way
    Column("discovered_at_ms", BigInteger),
    Column("failures", Integer, nullable=False, server_default=text("0")),  # in a row
    Column("error", Text),
    Index("ix_catalogs_due_at_ms", "due_at_ms"),
)

# Values of sensitive properties, encrypted. Only an assignment, and a change of them, reads these.
catalog_secrets = Table(
    "catalog_secrets",
    metadata,
    Column("catalog", Text, ForeignKey("catalogs.name"), primary_key=True),
    Column("sealed", JSON, nullable=False),
)

lake_tables = Table(
    "lake_tables",
    metadata,
    Column("id", Text, primary_key=True),  # owns the table's commit mark, for all its processes
    Column("catalog", Text, ForeignKey("catalogs.name"), nullable=False),
    Column("namespace", JSON, nullable=False),  # its levels
    Column("name", Text, nullable=False),
    Column("identifier", Text, nullable=False, unique=True),  # catalog.namespace.name, for people
    Column("created_at_ms", BigInteger, nullable=False),  # first seen
    # What users asked for.
    Column("wanted_paused", Integer, nullable=False, server_default=text("0")),
    Column("wanted_type", Text),  # optimize now, at least this thoroughly
    # Where its optimizing stands.
    Column("status", Text, nullable=False),
    Column("status_since_ms", BigInteger, nullable=False),
    Column("process_id", Text),  # of the process that it is in
    Column("processes", Integer, nullable=False, server_default=text("0")),  # how many it had
    Column("task_id", Text),  # the evaluation or the planning that is under way
    Column("due_at_ms", BigInteger, nullable=False),  # of the next evaluation
    Column("interval_ms", BigInteger, nullable=False),  # between evaluations, as it adapts
    Column("planned_at_ms", BigInteger),
    Column("not_before_ms", BigInteger, nullable=False, server_default=text("0")),  # of planning
    Column("failures", Integer, nullable=False, server_default=text("0")),  # in a row
    Column("error", Text),  # why the last attempt at anything failed
    Column("error_kind", Text),  # what the error is about
    # As its last evaluation saw it.
    Column("uuid", Text),  # Iceberg's: a recreated table has another
    Column("pointer", Text),  # its metadata file: unchanged, so is the table
    Column("snapshot", BigInteger),
    Column("evaluated_at_ms", BigInteger),
    Column("look_at_ms", BigInteger),  # when a rule may fire though nothing changes
    Column("optimized_snapshot", BigInteger),  # the last that one of our processes made
    Column("optimized_at_ms", BigInteger),
    Column("group_name", Text, nullable=False),
    Column("enabled", Integer, nullable=False, server_default=text("1")),
    Column("quota", Float, nullable=False),
    Column("min_plan_interval_ms", BigInteger, nullable=False),
    Column("flaws", JSON, nullable=False, server_default=text("'[]'")),  # invalid properties
    Column("pending", JSON(none_as_null=True)),  # input that waits to be rewritten (T2)
    Column("pending_since_ms", BigInteger),
    Column("benefit", Float, nullable=False, server_default=text("0")),  # of the pending input
    Column("summary", JSON(none_as_null=True)),  # what was measured, and every rule: for people
    Column("clocks", JSON, nullable=False, server_default=text("'{}'")),  # by partition
    Column("file_failures", JSON, nullable=False, server_default=text("'{}'")),  # by path
    CheckConstraint(f"status IN {quoted_list(TableStatus)}", name="status"),
    CheckConstraint(
        f"wanted_type IN {quoted_list(t.name for t in OptimizingType)}", name="wanted_type"
    ),
    CheckConstraint(f"error_kind IN {quoted_list(TableErrorKind)}", name="error_kind"),
    Index("ix_lake_tables_catalog_due_at_ms", "catalog", "due_at_ms"),
    partial_index("ix_lake_tables_wanted", "id", where="wanted_type IS NOT NULL"),
    partial_index(
        "ix_lake_tables_busy", "group_name", "pending_since_ms", "id", where="status <> 'IDLE'"
    ),
)

processes = Table(
    "processes",
    metadata,
    Column("id", Text, primary_key=True),
    Column("table_id", Text, nullable=False),  # may be gone: processes outlive tables
    Column("identifier", Text, nullable=False),
    Column("number", Integer, nullable=False),  # counts per table; part of its token
    Column("type", Text, nullable=False),
    Column("status", Text, nullable=False),
    Column("group_name", Text, nullable=False),
    Column("wanted_cancel", Integer, nullable=False, server_default=text("0")),
    Column("uuid", Text, nullable=False),
    Column("snapshot", BigInteger, nullable=False),  # from which it was planned
    Column("plan", JSON, nullable=False),  # gain, settings, partitions that it is the last for
    Column("commit_task", Text),
    # Set: its table no longer waits for it, and is asked whether the commit is in it (E3).
    Column("settling_since_ms", BigInteger),
    Column("result", JSON(none_as_null=True)),
    Column("error", Text),
    # 1: it has ended without a commit, and its staged files may still be at the table (E6).
    Column("leftovers", Integer, nullable=False, server_default=text("0")),
    Column("discard_task", Text),
    Column("discard_at_ms", BigInteger),
    Column("discard_failures", Integer, nullable=False, server_default=text("0")),
    Column("created_at_ms", BigInteger, nullable=False),
    Column("ended_at_ms", BigInteger),
    UniqueConstraint("table_id", "number"),
    CheckConstraint(f"status IN {quoted_list(ProcessStatus)}", name="status"),
    CheckConstraint(f"type IN {quoted_list(t.name for t in OptimizingType)}", name="type"),
    CheckConstraint(
        f"(ended_at_ms IS NULL) = (status NOT IN {quoted_list(PROCESS_ENDED)})",
        name="ended_when_terminal",
    ),
    # One process at a time: the store itself refuses a second.
    Index(
        "ix_processes_running",
        "table_id",
        unique=True,
        sqlite_where=text("status = 'RUNNING'"),
        postgresql_where=text("status = 'RUNNING'"),
    ),
    partial_index("ix_processes_leftovers", "discard_at_ms", where="leftovers = 1"),
    Index("ix_processes_ended_at_ms", "ended_at_ms"),
)

# By a blocker a writer asks that a table be left alone for a while.
blockers = Table(
    "blockers",
    metadata,
    Column("table_id", Text, primary_key=True),
    Column("name", Text, primary_key=True),
    Column("reason", Text, nullable=False),
    Column("created_at_ms", BigInteger, nullable=False),
    Column("expires_at_ms", BigInteger, nullable=False),
    Index("ix_blockers_expires_at_ms", "expires_at_ms"),
)

# Conditions of the partial indexes, word for word.
RUNNING_PROCESS = text("processes.status = 'RUNNING'")
LEFTOVERS_OF_PROCESS = text("processes.leftovers = 1")
BUSY_TABLE = text("lake_tables.status <> 'IDLE'")
WANTED_TABLE = text("lake_tables.wanted_type IS NOT NULL")
