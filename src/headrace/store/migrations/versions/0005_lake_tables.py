"""Lake tables: catalogs, the tables in them, processes that optimize them, and blockers.

Programs before it can't read the tasks of tables: none of them may lead any more.
"""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None

_KINDS = (
    "kind IN ('COMMIT', 'DISCARD', 'DISCOVER', 'EVALUATE', 'FORGET', "
    "'NOOP', 'PIPELINE', 'PLAN', 'REWRITE', 'SETTLE')"
)
_STATUSES = (
    "status IN ('COMMITTING', 'FULL_OPTIMIZING', 'IDLE', 'MAJOR_OPTIMIZING', "
    "'MINOR_OPTIMIZING', 'PENDING', 'PLANNING')"
)
OLDEST_PROGRAM = "3"
AT_ONCE_MS = 0  # when the embedded catalog is due to be looked at


def upgrade() -> None:
    _shut_out_older_programs()
    _widen_tasks()
    _make_catalogs()
    _make_lake_tables()
    _make_processes()
    _make_blockers()
    _add_embedded_catalog()


def _shut_out_older_programs() -> None:
    facts = sa.table("facts", sa.column("name"), sa.column("value"))
    oldest = sa.update(facts).where(facts.c.name == "oldest_program")
    op.execute(oldest.values(value=OLDEST_PROGRAM))
    leases = sa.table("leases", sa.column("holder"), sa.column("epoch"))
    op.execute(sa.update(leases).values(holder="", epoch=leases.c.epoch + 1))


def _widen_tasks() -> None:
    with op.batch_alter_table("tasks") as tasks:
        tasks.drop_constraint(op.f("ck_tasks_kind"), type_="check")
        tasks.create_check_constraint(op.f("ck_tasks_kind"), _KINDS)
    for column in (
        sa.Column("table_id", sa.Text()),
        sa.Column("process_id", sa.Text()),
        sa.Column("number", sa.Integer()),
        sa.Column("granted", sa.Integer(), nullable=False, server_default=sa.text("1")),
    ):
        op.add_column("tasks", column)
    for name in ("process_id", "table_id"):
        _partial_index(f"ix_tasks_{name}", "tasks", name, where=f"{name} IS NOT NULL")


def _partial_index(name: str, table: str, *columns: str, where: str, unique: bool = False) -> None:
    rows = sa.text(where)
    op.create_index(
        name, table, [*columns], unique=unique, sqlite_where=rows, postgresql_where=rows
    )


def _make_catalogs() -> None:
    op.create_table(
        "catalogs",
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("type", sa.Text(), nullable=False),
        sa.Column("properties", sa.JSON(), nullable=False),
        sa.Column("defaults", sa.JSON(), nullable=False),
        sa.Column("table_filter", sa.Text()),
        sa.Column("group_name", sa.Text(), nullable=False),
        sa.Column("created_at_ms", sa.BigInteger(), nullable=False),
        sa.Column("wanted_removed", sa.Integer(), nullable=False, server_default=sa.text("0")),
        sa.Column("due_at_ms", sa.BigInteger(), nullable=False),
        sa.Column("task_id", sa.Text()),
        sa.Column("discovered_at_ms", sa.BigInteger()),
        sa.Column("failures", sa.Integer(), nullable=False, server_default=sa.text("0")),
        sa.Column("error", sa.Text()),
        sa.PrimaryKeyConstraint("name", name="pk_catalogs"),
    )
    op.create_index("ix_catalogs_due_at_ms", "catalogs", ["due_at_ms"])
    op.create_table(
        "catalog_secrets",
        sa.Column("catalog", sa.Text(), nullable=False),
        sa.Column("secrets", sa.JSON(), nullable=False),
        sa.ForeignKeyConstraint(["catalog"], ["catalogs.name"], name="fk_catalog_secrets_catalog"),
        sa.PrimaryKeyConstraint("catalog", name="pk_catalog_secrets"),
    )


def _make_lake_tables() -> None:
    op.create_table(
        "lake_tables",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("catalog", sa.Text(), nullable=False),
        sa.Column("namespace", sa.JSON(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("identifier", sa.Text(), nullable=False),
        sa.Column("created_at_ms", sa.BigInteger(), nullable=False),
        sa.Column("wanted_paused", sa.Integer(), nullable=False, server_default=sa.text("0")),
        sa.Column("wanted_type", sa.Text()),
        sa.Column("status", sa.Text(), nullable=False),
        sa.Column("status_since_ms", sa.BigInteger(), nullable=False),
        sa.Column("process_id", sa.Text()),
        sa.Column("processes", sa.Integer(), nullable=False, server_default=sa.text("0")),
        sa.Column("task_id", sa.Text()),
        sa.Column("due_at_ms", sa.BigInteger(), nullable=False),
        sa.Column("interval_ms", sa.BigInteger(), nullable=False),
        sa.Column("planned_at_ms", sa.BigInteger()),
        sa.Column("not_before_ms", sa.BigInteger(), nullable=False, server_default=sa.text("0")),
        sa.Column("failures", sa.Integer(), nullable=False, server_default=sa.text("0")),
        sa.Column("error", sa.Text()),
        *_as_last_looked_at(),
        sa.CheckConstraint(_STATUSES, name=op.f("ck_lake_tables_status")),
        sa.CheckConstraint(
            "wanted_type IN ('FULL', 'MAJOR', 'MINOR')", name=op.f("ck_lake_tables_wanted_type")
        ),
        sa.ForeignKeyConstraint(["catalog"], ["catalogs.name"], name="fk_lake_tables_catalog"),
        sa.PrimaryKeyConstraint("id", name="pk_lake_tables"),
        sa.UniqueConstraint("identifier", name="uq_lake_tables_identifier"),
    )
    _index_lake_tables()


def _as_last_looked_at() -> list[sa.Column[Any]]:
    return [
        sa.Column("uuid", sa.Text()),
        sa.Column("pointer", sa.Text()),
        sa.Column("snapshot", sa.BigInteger()),
        sa.Column("evaluated_at_ms", sa.BigInteger()),
        sa.Column("look_at_ms", sa.BigInteger()),
        sa.Column("optimized_snapshot", sa.BigInteger()),
        sa.Column("optimized_at_ms", sa.BigInteger()),
        sa.Column("group_name", sa.Text(), nullable=False),
        sa.Column("enabled", sa.Integer(), nullable=False, server_default=sa.text("1")),
        sa.Column("quota", sa.Float(), nullable=False),
        sa.Column("min_plan_interval_ms", sa.BigInteger(), nullable=False),
        sa.Column("flaws", sa.JSON(), nullable=False, server_default=sa.text("'[]'")),
        sa.Column("pending", sa.JSON(none_as_null=True)),
        sa.Column("pending_since_ms", sa.BigInteger()),
        sa.Column("benefit", sa.Float(), nullable=False, server_default=sa.text("0")),
        sa.Column("summary", sa.JSON(none_as_null=True)),
        sa.Column("clocks", sa.JSON(), nullable=False, server_default=sa.text("'{}'")),
        sa.Column("file_failures", sa.JSON(), nullable=False, server_default=sa.text("'{}'")),
    ]


def _index_lake_tables() -> None:
    turns = ("group_name", "pending_since_ms", "id")
    _partial_index("ix_lake_tables_busy", "lake_tables", *turns, where="status <> 'IDLE'")
    _partial_index("ix_lake_tables_wanted", "lake_tables", "id", where="wanted_type IS NOT NULL")
    by_catalog = ["catalog", "due_at_ms"]
    op.create_index("ix_lake_tables_catalog_due_at_ms", "lake_tables", by_catalog)


def _make_processes() -> None:
    op.create_table(
        "processes",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("table_id", sa.Text(), nullable=False),
        sa.Column("identifier", sa.Text(), nullable=False),
        sa.Column("number", sa.Integer(), nullable=False),
        sa.Column("type", sa.Text(), nullable=False),
        sa.Column("status", sa.Text(), nullable=False),
        sa.Column("group_name", sa.Text(), nullable=False),
        sa.Column("wanted_cancel", sa.Integer(), nullable=False, server_default=sa.text("0")),
        sa.Column("uuid", sa.Text(), nullable=False),
        sa.Column("snapshot", sa.BigInteger(), nullable=False),
        sa.Column("plan", sa.JSON(), nullable=False),
        sa.Column("commit_task", sa.Text()),
        sa.Column("settling_since_ms", sa.BigInteger()),
        sa.Column("result", sa.JSON(none_as_null=True)),
        sa.Column("error", sa.Text()),
        sa.Column("leftovers", sa.Integer(), nullable=False, server_default=sa.text("0")),
        sa.Column("discard_task", sa.Text()),
        sa.Column("discard_at_ms", sa.BigInteger()),
        sa.Column("discard_failures", sa.Integer(), nullable=False, server_default=sa.text("0")),
        sa.Column("created_at_ms", sa.BigInteger(), nullable=False),
        sa.Column("ended_at_ms", sa.BigInteger()),
        sa.CheckConstraint(
            "(ended_at_ms IS NULL) = (status NOT IN ('CLOSED', 'FAILED', 'KILLED', 'SUCCESS'))",
            name=op.f("ck_processes_ended_when_terminal"),
        ),
        sa.CheckConstraint(
            "status IN ('CLOSED', 'FAILED', 'KILLED', 'RUNNING', 'SUCCESS')",
            name=op.f("ck_processes_status"),
        ),
        sa.CheckConstraint("type IN ('FULL', 'MAJOR', 'MINOR')", name=op.f("ck_processes_type")),
        sa.PrimaryKeyConstraint("id", name="pk_processes"),
        sa.UniqueConstraint("table_id", "number", name="uq_processes_table_id_number"),
    )
    _index_processes()


def _index_processes() -> None:
    op.create_index("ix_processes_ended_at_ms", "processes", ["ended_at_ms"])
    _partial_index("ix_processes_leftovers", "processes", "discard_at_ms", where="leftovers = 1")
    _partial_index(
        "ix_processes_running", "processes", "table_id", where="status = 'RUNNING'", unique=True
    )


def _make_blockers() -> None:
    op.create_table(
        "blockers",
        sa.Column("table_id", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("reason", sa.Text(), nullable=False),
        sa.Column("created_at_ms", sa.BigInteger(), nullable=False),
        sa.Column("expires_at_ms", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("table_id", "name", name="pk_blockers"),
    )
    op.create_index("ix_blockers_expires_at_ms", "blockers", ["expires_at_ms"])


def _add_embedded_catalog() -> None:
    """It lies in the warehouse of whichever worker looks at it, so there is nothing to tell."""
    catalogs = sa.table(
        "catalogs",
        *(sa.column(name, sa.Text()) for name in ("name", "type", "group_name")),
        *(sa.column(name, sa.JSON()) for name in ("properties", "defaults")),
        *(sa.column(name, sa.BigInteger()) for name in ("created_at_ms", "due_at_ms")),
    )
    embedded = {"name": "headrace", "type": "embedded", "group_name": "default"}
    nothing = {"properties": dict[str, str](), "defaults": dict[str, str]()}
    times = {"created_at_ms": AT_ONCE_MS, "due_at_ms": AT_ONCE_MS}
    op.bulk_insert(catalogs, [embedded | nothing | times])
