"""Views of catalogs, lake tables, their processes and blockers, and what explains a table."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from pydantic import TypeAdapter, ValidationError
from sqlalchemy import Connection

from headrace.client.tables import (
    BlockerView,
    CatalogView,
    DryPlanView,
    ExplanationView,
    FindingView,
    PendingView,
    ProcessView,
    TableView,
)
from headrace.coordinator.tables.explain import Explanation
from headrace.coordinator.tables.obstacles import progress_of, read_measured
from headrace.coordinator.workforce import Workforce
from headrace.model.tables.plan import Gain
from headrace.model.tables.schedule import left_out
from headrace.model.tables.settings import property_of
from headrace.model.tables.status import ProcessStatus
from headrace.model.task import TaskStatus
from headrace.protocol.tables import Pending, Planned, Summary
from headrace.store.tables import lake_tables, processes, table_tasks
from headrace.store.tables.catalogs import Catalog
from headrace.store.tables.lake_tables import Blocker, LakeTable, TableMeasures
from headrace.store.tables.processes import Process
from headrace.store.tasks.tasks import Task

_GAIN = TypeAdapter(Gain)


def catalog_view(
    catalog: Catalog, *, tables: int, has_workers: bool = True, changed: bool | None = None
) -> CatalogView:
    """Secrets are kept elsewhere in the store, and are redacted in its properties.

    `has_workers`: whether there are workers in its group.
    """
    lacking = f"a worker of its group {catalog.group!r}, which has none"
    return CatalogView(
        name=catalog.name,
        type=catalog.type,
        properties=dict(catalog.properties),
        defaults=dict(catalog.defaults),
        table_filter=catalog.table_filter,
        group=catalog.group,
        tables=tables,
        removing=catalog.wanted_removed,
        created_at_ms=catalog.created_at_ms,
        discovered_at_ms=catalog.discovered_at_ms,
        due_at_ms=catalog.due_at_ms,
        looking=catalog.task_id is not None,
        waits_for=None if has_workers else lacking,
        failures=catalog.failures,
        error=catalog.error,
        changed=changed,
    )


def table_views(conn: Connection, tables: Sequence[LakeTable]) -> tuple[TableView, ...]:
    """Tables for a list: without what is only shown of a single table."""
    measured = lake_tables.measured(conn, [table.id for table in tables])
    return tuple(_table_view(table, measured.get(table.id, TableMeasures())) for table in tables)


def table_view(
    conn: Connection, table: LakeTable, *, now_ms: int, changed: bool | None = None
) -> TableView:
    measured = TableMeasures(
        lake_tables.pending_of(conn, table.id), lake_tables.summary_of(conn, table.id)
    )
    process = processes.running_of(conn, table.id)
    held = lake_tables.blockers_of(conn, table.id, now_ms=now_ms)
    return _table_view(
        table,
        measured,
        process=process_view(conn, process) if process is not None else None,
        flaws=tuple(lake_tables.flaws_of(conn, table.id)),
        left_out=tuple(sorted(left_out(lake_tables.file_failures_of(conn, table.id)))),
        blockers=tuple(map(blocker_view, held)),
        changed=changed,
    )


def _table_view(table: LakeTable, measured: TableMeasures, **more: Any) -> TableView:
    pending, summary = read_measured(measured)
    return TableView(
        identifier=table.identifier,
        catalog=table.catalog,
        group=table.group,
        quota=table.quota,
        status=table.status,
        status_since_ms=table.status_since_ms,
        enabled=table.enabled,
        paused=table.wanted_paused,
        wanted_type=table.wanted_type.name if table.wanted_type else None,
        pending=_pending_view(pending) if pending is not None else None,
        processes=table.processes,
        due_at_ms=table.due_at_ms,
        not_before_ms=table.not_before_ms,
        evaluated_at_ms=table.evaluated_at_ms,
        optimized_at_ms=table.optimized_at_ms,
        failures=table.failures,
        error=table.error,
        **_summary_fields(summary),
        **more,
    )


def _summary_fields(summary: Summary | None) -> Mapping[str, Any]:
    if summary is None:
        return {}
    return {
        "health": summary.score,
        "files": summary.files,
        "bytes": summary.bytes,
        "rows": summary.rows,
        "partitions": summary.partitions,
        "quota_set_by": summary.set_by.get(property_of("quota")),
    }


def _pending_view(pending: Pending) -> PendingView:
    return PendingView(
        type=pending.type,
        files=pending.files,
        files_after=pending.files_after,
        bytes=pending.bytes,
        bytes_after=pending.bytes_after,
        deletes=pending.position_deletes + pending.equality_deletes,
        partitions=pending.partitions,
    )


def process_view(conn: Connection, process: Process) -> ProcessView:
    plan = processes.plan_of(conn, process.id)
    result = processes.result_of(conn, process.id) or {}
    committed = result.get("snapshot")
    running = process.status is ProcessStatus.RUNNING
    at = progress_of(conn, process) if running else None
    return ProcessView(
        id=process.id,
        table=process.identifier,
        number=process.number,
        type=process.type.name,
        status=process.status,
        settling=process.settling,
        canceling=running and process.wanted_cancel,
        snapshot=str(process.snapshot),
        committed_snapshot=str(committed) if committed is not None else None,
        partitions_left=plan.get("left", 0),
        conflicts=len(result.get("conflicts", ())),
        tasks=at.total if at else None,
        tasks_done=at.done if at else None,
        workers=at.workers if at else (),
        error=process.error,
        created_at_ms=process.created_at_ms,
        ended_at_ms=process.ended_at_ms,
        files_after=result.get("files_after"),
        bytes_after=result.get("bytes_after"),
        **_gain_fields(plan.get("gain")),
    )


def _gain_fields(stored: object) -> Mapping[str, int]:
    """The gain as it was planned; empty when another version wrote a plan that can't be read."""
    try:
        gain = _GAIN.validate_python(stored)
    except ValidationError:
        return {}
    return {
        "files_before": gain.files_before,
        "files_planned": gain.files_after,
        "bytes_before": gain.bytes_before,
        "bytes_planned": gain.bytes_after,
    }


def blocker_view(blocker: Blocker, *, committing: int | None = None) -> BlockerView:
    return BlockerView(
        name=blocker.name,
        reason=blocker.reason,
        created_at_ms=blocker.created_at_ms,
        expires_at_ms=blocker.expires_at_ms,
        committing=committing,
    )


def explanation_view(identifier: str, explanation: Explanation) -> ExplanationView:
    return ExplanationView(
        table=identifier,
        headline=explanation.headline,
        findings=tuple(
            FindingView(
                about=each.about,
                verdict=each.verdict,
                said=each.text,
                measured=each.measured,
                threshold=each.threshold,
                property=each.property,
                way_out=each.way_out,
            )
            for each in explanation.findings
        ),
    )


def dry_plan_view(conn: Connection, identifier: str, task: Task) -> DryPlanView:
    stored = table_tasks.result(conn, task.id) if task.status is TaskStatus.SUCCESS else None
    return DryPlanView(
        task=task.id,
        table=identifier,
        status=task.status,
        waits_for=_waits_for(conn, task),
        error=task.error,
        **(_plan_fields(Planned.model_validate(stored)) if stored is not None else {}),
    )


def _waits_for(conn: Connection, task: Task) -> str | None:
    if task.status is not TaskStatus.PLANNED:
        return None
    workforce = Workforce.read(conn)
    if (lacking := workforce.lacks(task.group, task.needs, task.kind)) is not None:
        return lacking
    suffix = "" if task.group in workforce else ", which has none"
    return f"a worker of group {task.group!r}{suffix}"


def _plan_fields(planned: Planned) -> Mapping[str, Any]:
    bins = [each for task in planned.tasks for each in task]
    files: Counter[str] = Counter()
    for each in bins:
        files[each.partition] += len(each.paths)
    gain = asdict(planned.gain) if planned.gain is not None else {}
    gain.pop("benefit", None)  # it orders tables, and is not part of the view
    return {
        "type": planned.type,
        "reason": planned.reason,
        "partitions": dict(files.most_common()),
        "tasks": len(planned.tasks),
        "partitions_left": planned.left,
        "left_out": planned.left_out,
        **gain,
    }
