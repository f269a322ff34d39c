"""Groups of workers, what was asked of containers for them, and which worker came of which."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None

_STEPS = "step IN ('FAILED', 'INTENDED', 'STARTED')"
_POLICIES = "policy IN ('balanced', 'benefit', 'quota')"
_NONE = sa.text("0")
AT_THE_START_MS = 0  # when the group `default` was made


def upgrade() -> None:
    for column in (
        sa.Column("resource_id", sa.Text()),
        sa.Column("launch", sa.Integer(), nullable=False, server_default=_NONE),
        sa.Column("memory_mb", sa.Integer(), nullable=False, server_default=_NONE),
        sa.Column("drain_since_ms", sa.BigInteger(), nullable=False, server_default=_NONE),
    ):
        op.add_column("workers", column)
    op.create_index("ix_workers_resource_id", "workers", ["resource_id"])
    _make_groups()
    _make_resources()


def _make_groups() -> None:
    op.create_table(
        "groups",
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("container", sa.Text(), nullable=False),
        sa.Column("min_parallelism", sa.Integer(), nullable=False, server_default=_NONE),
        sa.Column("memory_mb", sa.Integer(), nullable=False, server_default=_NONE),
        sa.Column("policy", sa.Text()),
        sa.Column("properties", sa.JSON(), nullable=False, server_default=sa.text("'{}'")),
        sa.Column("created_at_ms", sa.BigInteger(), nullable=False),
        sa.Column("wanted_removed", sa.Integer(), nullable=False, server_default=_NONE),
        sa.Column("keep_attempts", sa.Integer(), nullable=False, server_default=_NONE),
        sa.Column("keep_next_at_ms", sa.BigInteger(), nullable=False, server_default=_NONE),
        sa.Column("effective_parallelism", sa.Integer()),
        sa.Column("effective_reason", sa.Text()),
        sa.CheckConstraint("min_parallelism >= 0", name=op.f("ck_groups_floor")),
        sa.CheckConstraint(_POLICIES, name=op.f("ck_groups_policy")),
        sa.PrimaryKeyConstraint("name", name="pk_groups"),
    )
    made = sa.table(
        "groups",
        *(sa.column(name, sa.Text()) for name in ("name", "container")),
        sa.column("created_at_ms", sa.BigInteger()),
    )
    default = {"name": "default", "container": "external", "created_at_ms": AT_THE_START_MS}
    op.bulk_insert(made, [default])


def _make_resources() -> None:
    op.create_table(
        "resources",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("group_name", sa.Text(), nullable=False),
        sa.Column("container", sa.Text(), nullable=False),
        sa.Column("threads", sa.Integer(), nullable=False),
        sa.Column("memory_mb", sa.Integer(), nullable=False),
        sa.Column("properties", sa.JSON(), nullable=False),
        sa.Column("made_for", sa.Text(), nullable=False),
        sa.Column("created_at_ms", sa.BigInteger(), nullable=False),
        sa.Column("wanted_released", sa.Integer(), nullable=False, server_default=_NONE),
        sa.Column("launch", sa.Integer(), nullable=False, server_default=_NONE),
        sa.Column("step", sa.Text(), nullable=False),
        sa.Column("started_at_ms", sa.BigInteger()),
        sa.Column("launched_at_ms", sa.BigInteger()),
        sa.Column("orphaned_since_ms", sa.BigInteger()),
        sa.Column("attempts", sa.Integer(), nullable=False, server_default=_NONE),
        sa.Column("told", sa.Text()),
        sa.Column("error", sa.Text()),
        sa.CheckConstraint(_STEPS, name=op.f("ck_resources_step")),
        sa.ForeignKeyConstraint(["group_name"], ["groups.name"], name="fk_resources_group_name"),
        sa.PrimaryKeyConstraint("id", name="pk_resources"),
    )
    op.create_index("ix_resources_group_name", "resources", ["group_name"])
