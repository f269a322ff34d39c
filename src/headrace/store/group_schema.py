"""The tables of the store that speak of groups: what was asked of containers for each.

A *resource* is what was asked for, a *worker* is who registered. They are separate records: a crash
takes the worker's away, and the resource's tells that there should be one.
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
    text,
)

from headrace.model.groups.resource import LaunchStep
from headrace.model.tables.schedule import SchedulingPolicy
from headrace.store.naming import metadata, one_of

groups = Table(
    "groups",
    metadata,
    Column("name", Text, primary_key=True),
    Column("container", Text, nullable=False),  # as it is configured; `external`: nobody starts
    Column("min_parallelism", Integer, nullable=False, server_default=text("0")),  # as asked for
    Column("memory_mb", Integer, nullable=False, server_default=text("0")),  # of each resource
    Column("policy", Text),  # how its tables take turns; NULL: as the coordinator was told
    Column("properties", JSON, nullable=False, server_default=text("'{}'")),
    Column("created_at_ms", BigInteger, nullable=False),
    Column("wanted_removed", Integer, nullable=False, server_default=text("0")),
    # How far keeping the floor has got. What was asked for is never edited (R5).
    Column("keep_attempts", Integer, nullable=False, server_default=text("0")),
    Column("keep_next_at_ms", BigInteger, nullable=False, server_default=text("0")),
    Column("effective_parallelism", Integer),
    Column("effective_reason", Text),
    CheckConstraint("min_parallelism >= 0", name="floor"),
    CheckConstraint(f"policy IN {one_of(SchedulingPolicy)}", name="policy"),
)

resources = Table(
    "resources",
    metadata,
    Column("id", Text, primary_key=True),
    Column("group_name", Text, ForeignKey("groups.name"), nullable=False),
    Column("container", Text, nullable=False),
    Column("threads", Integer, nullable=False),
    Column("memory_mb", Integer, nullable=False),
    Column("properties", JSON, nullable=False),  # asked for, and found out by its starts
    Column("made_for", Text, nullable=False),  # `floor`, or `user`
    Column("created_at_ms", BigInteger, nullable=False),
    Column("wanted_released", Integer, nullable=False, server_default=text("0")),
    # A start is not a write of ours: its number is written before it, what it found out after it.
    Column("launch", Integer, nullable=False, server_default=text("0")),
    Column("step", Text, nullable=False),
    Column("started_at_ms", BigInteger),  # the first time; a restart does not overwrite it (R4)
    Column("launched_at_ms", BigInteger),  # the latest time
    Column("orphaned_since_ms", BigInteger),
    Column("attempts", Integer, nullable=False, server_default=text("0")),  # in this orphanhood
    Column("told", Text),  # what was said once about it
    Column("error", Text),  # why its latest start failed, or how its latest worker ended
    CheckConstraint(f"step IN {one_of(LaunchStep)}", name="step"),
    Index("ix_resources_group_name", "group_name"),
)
