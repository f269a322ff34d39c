"""What people see of catalogs, lake tables and their processes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import ValidationError
from sqlalchemy import Connection

from headrace.coordinator.tables.explain import Explanation
from headrace.coordinator.tables.standing import progress_of, read_measured
from headrace.model.tables.backoff import left_out
from headrace.model.tables.settings import property_of
from headrace.model.tables.status import ProcessStatus
from headrace.model.task import TaskStatus
from headrace.protocol.tables import GainTold, Pending, Planned, Summary
from headrace.store import blockers, lake, lake_lists, processes, table_tasks, workers
from headrace.store.blockers import Blocker
from headrace.store.catalogs import Catalog
from headrace.store.lake_lists import Measured
from headrace.store.lake_rows import LakeTable
from headrace.store.processes import Process
from headrace.store.tasks import Task
from headrace.views_tables import (
    BlockerView,
    CatalogView,
    DryPlanView,
    ExplanationView,
    FindingView,
    PendingView,
    ProcessView,
    TableView,
)


def catalog_view(
    catalog: Catalog, *, tables: int, manned: bool = True, changed: bool | None = None
) -> CatalogView:
    """Its secrets stand elsewhere in the store, and are redacted in its properties. `manned`:
    whether its group has workers."""
    alone = f"a worker of its group {catalog.group!r}, which has none"
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
        waits_for=None if manned else alone,
        failures=catalog.failures,
        error=catalog.error,
        changed=changed,
    )


def table_views(conn: Connection, found: Sequence[LakeTable]) -> tuple[TableView, ...]:
    """For a list: without what only one table is asked for."""
    measured = lake_lists.measured(conn, [table.id for table in found])
    return tuple(_table_view(table, measured.get(table.id, Measured())) for table in found)


def table_view(
    conn: Connection, table: LakeTable, *, now_ms: int, changed: bool | None = None
) -> TableView:
    measured = Measured(lake.pending_of(conn, table.id), lake.summary_of(conn, table.id))
    process = processes.running_of(conn, table.id)
    held = blockers.of(conn, table.id, now_ms=now_ms)
    return _table_view(
        table,
        measured,
        process=process_view(conn, process) if process is not None else None,
        flaws=tuple(lake.flaws_of(conn, table.id)),
        left_out=tuple(sorted(left_out(lake.file_failures_of(conn, table.id)))),
        blockers=tuple(map(blocker_view, held)),
        changed=changed,
    )


def _table_view(table: LakeTable, measured: Measured, **more: Any) -> TableView:
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
        **_summed(summary),
        **more,
    )


def _summed(summary: Summary | None) -> Mapping[str, Any]:
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
        **_gained(plan.get("gain")),
    )


def _gained(told: object) -> Mapping[str, int]:
    """As it was planned. What can't be read of another version's plan is not told."""
    try:
        gain = GainTold.model_validate(told)
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
                said=each.said,
                measured=each.measured,
                threshold=each.threshold,
                property=each.property,
                way_out=each.way_out,
            )
            for each in explanation.findings
        ),
    )


def dry_plan_view(conn: Connection, identifier: str, task: Task) -> DryPlanView:
    told = table_tasks.result(conn, task.id) if task.status is TaskStatus.SUCCESS else None
    return DryPlanView(
        task=task.id,
        table=identifier,
        status=task.status,
        waits_for=_waits_for(conn, task),
        error=task.error,
        **(_planned(Planned.model_validate(told)) if told is not None else {}),
    )


def _waits_for(conn: Connection, task: Task) -> str | None:
    if task.status is not TaskStatus.PLANNED:
        return None
    there = workers.slots_by_group(conn)
    none = "" if there.get(task.group) else ", which has none"
    return f"a worker of group {task.group!r}{none}"


def _planned(found: Planned) -> Mapping[str, Any]:
    bins = [each for task in found.tasks for each in task]
    files: Counter[str] = Counter()
    for each in bins:
        files[each.partition] += len(each.paths)
    gain = found.gain.model_dump(exclude={"benefit"}) if found.gain is not None else {}
    return {
        "type": found.type,
        "reason": found.reason,
        "partitions": dict(files.most_common()),
        "tasks": len(found.tasks),
        "partitions_left": found.left,
        "left_out": found.left_out,
        **gain,
    }
