"""What a plugin is made with, as the runner does it: typed options with defaults, and a setting."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

from headrace.clock import Clock, SystemClock
from headrace.connectors.connector import Setting
from headrace.model.jobs.epoch import EpochAt
from headrace.plugins.catalog import catalog
from headrace.plugins.syntax_tree import Role

NO_SESSION: Any = None  # for what is planned without asking Spark
INCARNATION = "0123456789abcdef0123456789abcdef"


def setting(
    plugin: str,
    role: Role,
    options: dict[str, Any],
    *,
    warehouse: str = "file:/nowhere",
    parallelism: int = 1,
    incarnation: str = INCARNATION,
    streaming: bool = False,
    checkpoint_interval_ms: int | None = None,
    commit_deadline_s: float = 3600.0,
    has_committed: bool = False,
    planned_tables: dict[Hashable, Any] | None = None,
    clock: Clock | None = None,
) -> tuple[Any, Setting]:
    """The options and the setting: `FileSink("LocalFile-1", *setting("LocalFile", …))`."""
    descriptor = catalog().find(role, plugin)
    assert descriptor is not None
    made = Setting(
        job="job-1",
        incarnation=incarnation,
        pipeline=1,
        parallelism=parallelism,
        streaming=streaming,
        warehouse=warehouse,
        checkpoint_interval_ms=checkpoint_interval_ms,
        commit_deadline_s=commit_deadline_s,
        has_committed=has_committed,
        planned_tables={} if planned_tables is None else planned_tables,
        clock=clock or SystemClock(),
    )
    return descriptor.typed_options(options), made


def at(epoch: int = 1, execution: str = "t1.1", incarnation: str = INCARNATION) -> EpochAt:
    return EpochAt(incarnation, 1, epoch, execution)
