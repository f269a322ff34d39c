"""Plugins made as the runner makes them: declared options, defaults filled in."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any, Literal

from headrace.connectors.connector import Setting
from headrace.jobfile.spec_checks import resolved_options
from headrace.model.jobs.epoch import EpochAt
from headrace.model.jobs.spec import PluginSpec

INCARNATION = "0123456789abcdef0123456789abcdef"


def setting(
    plugin: str,
    role: Literal["source", "transform", "sink"],
    options: dict[str, Any],
    *,
    warehouse: str = "file:/nowhere",
    parallelism: int = 1,
    incarnation: str = INCARNATION,
    streaming: bool = False,
    checkpoint_interval_ms: int | None = None,
    has_committed: bool = False,
    planned_tables: dict[Hashable, Any] | None = None,
) -> Setting:
    spec = PluginSpec(name=f"{plugin}-1", plugin=plugin, options=options)
    return Setting(
        job="job-1",
        incarnation=incarnation,
        pipeline=1,
        parallelism=parallelism,
        streaming=streaming,
        warehouse=warehouse,
        checkpoint_interval_ms=checkpoint_interval_ms,
        options=resolved_options(spec, role, {}),
        has_committed=has_committed,
        planned_tables={} if planned_tables is None else planned_tables,
    )


def at(epoch: int = 1, execution: str = "t1.1", incarnation: str = INCARNATION) -> EpochAt:
    return EpochAt(incarnation, 1, epoch, execution)
