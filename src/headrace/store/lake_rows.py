"""A lake table as it is read, without its wide columns."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from headrace.model.tables.status import OptimizingType, TableStatus
from headrace.store.table_schema import lake_tables


@dataclass(frozen=True, slots=True)
class LakeTable:
    id: str
    catalog: str
    namespace: tuple[str, ...]
    name: str
    identifier: str
    created_at_ms: int
    wanted_paused: bool
    wanted_type: OptimizingType | None
    status: TableStatus
    status_since_ms: int
    process_id: str | None
    processes: int
    task_id: str | None
    due_at_ms: int
    interval_ms: int
    planned_at_ms: int | None
    not_before_ms: int
    failures: int
    error: str | None
    uuid: str | None
    pointer: str | None
    snapshot: int | None
    evaluated_at_ms: int | None
    look_at_ms: int | None
    optimized_snapshot: int | None
    optimized_at_ms: int | None
    group: str
    enabled: bool
    quota: float
    min_plan_interval_ms: int
    pending_since_ms: int | None
    benefit: float

    @property
    def may_optimize(self) -> bool:
        """Nobody has switched it off: by its property, or by a command."""
        return self.enabled and not self.wanted_paused


_READ = (
    *("id", "catalog", "namespace", "name", "identifier", "created_at_ms", "wanted_paused"),
    *("wanted_type", "status", "status_since_ms", "process_id", "processes", "task_id"),
    *("due_at_ms", "interval_ms", "planned_at_ms", "not_before_ms", "failures", "error", "uuid"),
    *("pointer", "snapshot", "evaluated_at_ms", "look_at_ms", "optimized_snapshot"),
    *("optimized_at_ms", "group_name", "enabled", "quota", "min_plan_interval_ms"),
    *("pending_since_ms", "benefit"),
)
COLUMNS = tuple(lake_tables.c[name] for name in _READ)


_FIELDS = tuple({"group_name": "group"}.get(name, name) for name in _READ)


def to_table(row: Sequence[Any]) -> LakeTable:
    """From a row of COLUMNS."""
    told = dict(zip(_FIELDS, row, strict=True))
    told |= {name: bool(told[name]) for name in ("wanted_paused", "enabled")}
    told["namespace"] = tuple(told["namespace"])
    told["status"] = TableStatus(told["status"])
    wanted = told["wanted_type"]
    told["wanted_type"] = OptimizingType[wanted] if wanted else None
    return LakeTable(**told)
