"""Committing a process whose rewrites are done, and counting failures against input files.

A process gets one commit task at a time. The task asks the table first whether the commit has
landed, so it is idempotent: it can be given to any worker, any number of times (E3).

When rewrites fail, the files of the failed bins are counted. A file that took part in too many
failures is left out of planning, and named. Amoro plans the same poison file again every minute,
and loses the whole process each time.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import astuple
from typing import Any, assert_never, cast

from pydantic import ValidationError
from sqlalchemy import Connection

from headrace.coordinator.planned_tasks import plan_task
from headrace.coordinator.tables.table_state import (
    MOVED,
    back_off,
    bounded_clocks,
    clocks_for,
    close_process,
)
from headrace.model.tables.evaluation import PartitionClock
from headrace.model.tables.plan import advanced_clocks
from headrace.model.tables.schedule import blamed, left_out
from headrace.model.tables.status import OptimizingType, ProcessStatus, TableStatus
from headrace.model.task import UNEXPLAINED, TaskKind, TaskOrder, TaskStatus
from headrace.protocol import task_types
from headrace.protocol.tables import (
    FILES_BLAMED_MAX,
    BinFailed,
    Clocks,
    CommitResult,
    RewriteResult,
)
from headrace.protocol.task_types import RewriteOrder
from headrace.seams import seam
from headrace.store.tables import lake_tables, processes, table_changes, table_tasks
from headrace.store.tables.lake_tables import LakeTable
from headrace.store.tables.processes import Process
from headrace.store.tasks.tasks import OfTable, Task

log = logging.getLogger(__name__)

CONFLICT_WAIT_MAX_MS = 5 * 60_000  # the longest back-off after a commit conflict


def begin_commit(conn: Connection, table: LakeTable, process: Process, *, now_ms: int) -> None:
    """Move the table to COMMITTING and plan the commit task: no rewrite is outstanding."""
    if table_changes.begin_commit(conn, table, now_ms=now_ms):
        plan_commit(conn, process, table, now_ms=now_ms)
        seam("commit planned, in transaction")


def plan_commit(
    conn: Connection, process: Process, table: LakeTable | None, *, now_ms: int
) -> None:
    """Plan a commit task in the group that the table has now. One that is not claimed yet is
    canceled."""
    known = table_tasks.states_of(conn, process.id)
    before = [task.id for task in known if task.kind is TaskKind.COMMIT]
    table_tasks.cancel(conn, before, because=MOVED, now_ms=now_ms)
    task_id = f"{process.id}-commit-{len(before) + 1}"
    plan_task(
        conn,
        task_types.COMMIT,
        TaskOrder(),
        task_id=task_id,
        group=table.group if table is not None else process.group,
        of=OfTable(process.table_id, process.id),
        now_ms=now_ms,
    )
    processes.note_commit_task(conn, process.id, task_id)


def may_land(table: LakeTable, process: Process) -> bool:
    """Whether a commit of the running process has begun and its outcome is unknown."""
    return table.status is TableStatus.COMMITTING or process.settling


def committed(conn: Connection, process: Process, result: CommitResult, *, now_ms: int) -> None:
    """Apply the result of a commit task; idempotent: an ended process stays as it is."""
    if process.status is not ProcessStatus.RUNNING:
        return
    match result.outcome:
        case "COMMITTED":
            _succeeded(conn, process, result, now_ms=now_ms)
            seam("commit recorded, in transaction")
        case "GONE":
            because = "its table is gone, or was made anew"
            close_process(conn, process, ProcessStatus.CLOSED, because=because, now_ms=now_ms)
        case "ABORTED":
            because = "its token was spent by an abort: somebody had given it up"
            close_process(conn, process, ProcessStatus.FAILED, because=because, now_ms=now_ms)
        case "CONFLICT":
            first = next(iter(result.conflicts.values()), "no reason was told")
            because = f"nothing could be replaced, others changed every file first: {first}"
            close_process(conn, process, ProcessStatus.FAILED, because=because, now_ms=now_ms)
            processes.note_nothing_left(conn, process.id)
            _try_again_soon(conn, process, now_ms=now_ms)
        case _:
            assert_never(result.outcome)


def outcome_unknown(conn: Connection, process: Process, *, because: str, now_ms: int) -> None:
    """Fail the process: the commit failed, or the table could not be asked for too long."""
    table = lake_tables.get(conn, process.table_id)
    close_process(conn, process, ProcessStatus.FAILED, because=because, now_ms=now_ms)
    if process.settling and table is not None:  # `close_process` leaves this table alone
        back_off(conn, table, because=because, now_ms=now_ms)


def _try_again_soon(conn: Connection, process: Process, *, now_ms: int) -> None:
    """Limit the back-off after a conflict: a table that others write to is busy, not broken."""
    table, at_most_ms = lake_tables.get(conn, process.table_id), now_ms + CONFLICT_WAIT_MAX_MS
    if table is not None and table.not_before_ms > at_most_ms:
        table_changes.shorten_back_off(conn, table.id, not_before_ms=at_most_ms)


def _succeeded(conn: Connection, process: Process, result: CommitResult, *, now_ms: int) -> None:
    plan = processes.plan_of(conn, process.id)
    outcome: dict[str, object] = {
        "snapshot": result.snapshot,
        "conflicts": result.conflicts,
        "already": result.already,
        **_sizes_after(conn, process, result),
    }
    # Files staged for conflicting bins are discarded like those of an uncommitted process.
    discard_at_ms = now_ms if result.conflicts else None
    success = ProcessStatus.SUCCESS
    if not processes.end(
        conn, process, success, now_ms=now_ms, result=outcome, discard_at_ms=discard_at_ms
    ):
        return
    facts = {"table": process.identifier, "process_id": process.id, "snapshot": result.snapshot}
    log.info("process committed", extra={**facts, "conflicts": len(result.conflicts)})
    table = lake_tables.lock(conn, process.table_id)
    if table is None:
        return
    done: Mapping[str, str] = plan.get("done", {}) if _is_whole(conn, process, result) else {}
    table_changes.note_optimized(
        conn,
        table.id,
        snapshot=result.snapshot,
        at_ms=now_ms,
        clocks=bounded_clocks(_moved_clocks(clocks_for(conn, table), done, now_ms=now_ms)),
        file_failures=_failures_left(conn, table, process, result),
    )
    if table.process_id == process.id and table.status is TableStatus.COMMITTING:
        table_changes.release(conn, table, success, now_ms=now_ms)
    else:  # it was settling: the table has moved on without it
        table_changes.scan_at_once(conn, table.id, now_ms=now_ms)


def _sizes_after(conn: Connection, process: Process, result: CommitResult) -> Mapping[str, int]:
    """Files and bytes that the planned files have become, as written; bins that were not replaced
    count as before. Empty when that is unknown: this is for people, and must not fail a commit."""
    if result.bins is None and result.already:
        return {}
    results = table_tasks.results(conn, process.id)
    files = size = 0
    for task in table_tasks.of_process(conn, process.id):
        made = _written(results.get(task.number or 0) or {})
        for each in RewriteOrder.of(task.payload).bins:
            replaced = _is_replaced(each.number, result)
            if replaced and each.number not in made:
                return {}
            now = made[each.number] if replaced else (len(each.paths), each.bytes)
            files, size = files + now[0], size + now[1]
    return {"files_after": files, "bytes_after": size}


def _written(result: Mapping[str, Any]) -> Mapping[int, tuple[int, int]]:
    """Files and bytes that a rewrite task wrote, by bin number; a bin without both is left out, as
    is every bin of a result that can't be read."""
    written: dict[int, tuple[int, int]] = {}
    try:
        rewritten = RewriteResult.model_validate(result).rewritten
    except ValidationError:
        return written
    for each in rewritten:
        match each:
            case {"number": int(number), "added": list(added), "bytes": int(size)}:
                written[number] = (len(cast("list[Any]", added)), size)
            case _:
                continue
    return written


def _is_whole(conn: Connection, process: Process, result: CommitResult) -> bool:
    """Whether all that was planned has been replaced; only then are its partitions done. A table
    that is asked later knows no conflicts, only which bins have been replaced."""
    rewrites = [t for t in table_tasks.of_process(conn, process.id) if t.kind is TaskKind.REWRITE]
    if result.conflicts or any(task.status is not TaskStatus.SUCCESS for task in rewrites):
        return False
    if result.bins is None:
        return not result.already
    planned = {each.number for task in rewrites for each in RewriteOrder.of(task.payload).bins}
    return planned <= set(result.bins)


def _moved_clocks(clocks: Clocks, done: Mapping[str, str], *, now_ms: int) -> Clocks:
    """Clocks with this process as the latest optimizing of the partitions that it completed."""
    known = {key: PartitionClock(*times) for key, times in clocks.items()}
    kinds = {key: OptimizingType[kind] for key, kind in done.items()}
    return {
        key: astuple(clock) for key, clock in advanced_clocks(known, kinds, at_ms=now_ms).items()
    }


def _failures_left(
    conn: Connection, table: LakeTable, process: Process, result: CommitResult
) -> Mapping[str, int]:
    """The failure counts without the files that were replaced: these no longer exist."""
    before = lake_tables.file_failures_of(conn, table.id)
    if not before:
        return before
    gone = {
        path
        for task in table_tasks.of_process(conn, process.id)
        if task.status is TaskStatus.SUCCESS
        for each in RewriteOrder.of(task.payload).bins
        if _is_replaced(each.number, result)
        for path in each.paths
    }
    return {path: count for path, count in before.items() if path not in gone}


def _is_replaced(number: int, result: CommitResult) -> bool:
    if result.bins is not None:
        return number in result.bins
    return not result.already and str(number) not in result.conflicts


def blame(conn: Connection, process: Process, *, now_ms: int) -> None:
    """Count each failed rewrite of the process against the files that were in it."""
    rewrites = [t for t in table_tasks.of_process(conn, process.id) if t.kind is TaskKind.REWRITE]
    if all(task.status is not TaskStatus.FAILED for task in rewrites):
        return
    failures = dict(lake_tables.file_failures_of(conn, process.table_id))
    before = left_out(failures)
    for task in rewrites:
        if task.status is TaskStatus.FAILED:
            for paths, named in _guilty(conn, task):
                failures = dict(blamed(failures, paths, named=named))
    most = sorted(failures.items(), key=lambda item: (-item[1], item[0]))[:FILES_BLAMED_MAX]
    table_changes.note_file_failures(conn, process.table_id, dict(most))
    for path in sorted(left_out(failures) - before):
        facts = {"table": process.identifier, "file": path, "at_ms": now_ms}
        log.warning("file failed too often, it is left out of planning", extra=facts)


def _guilty(conn: Connection, task: Task) -> Iterable[tuple[Sequence[str], str | None]]:
    """The paths of each failed bin, and the file that the error names. When every attempt took its
    worker down, all bins of the task count. When the worker could not even begin, because the
    catalog was unavailable, none does."""
    failed = {each.number: each for each in _failed(conn, task)}
    for each in RewriteOrder.of(task.payload).bins:
        if each.number in failed:
            yield each.paths, failed[each.number].path
        elif not failed and task.failure_cause in UNEXPLAINED:
            yield each.paths, None


def _failed(conn: Connection, task: Task) -> Sequence[BinFailed]:
    try:
        return RewriteResult.model_validate(table_tasks.result(conn, task.id) or {}).failed
    except ValidationError:
        log.warning("rewrite result can't be read", extra={"task": task.id})
        return ()
