"""A process whose rewrites are done: one commit task, and what its answer makes of the process.

The commit task asks the table first, so that it can be given to anybody, any number of times (E3).
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import astuple
from typing import Any, assert_never, cast

from sqlalchemy import Connection

from headrace.coordinator.tables.closing import close_process, failed, to_be_found_again
from headrace.coordinator.tables.knowing import clocks_for, kept
from headrace.coordinator.tables.moving import MOVED
from headrace.model.tables.evaluate import Clock
from headrace.model.tables.plan import moved
from headrace.model.tables.status import OptimizingType, ProcessStatus, TableStatus
from headrace.model.task import Lane, TaskKind, TaskStatus
from headrace.protocol.tables import BinTold, Clocks, CommitResult, RewriteResult
from headrace.seams import seam
from headrace.store import lake, processes, table_tasks, tasks
from headrace.store.lake import LakeTable
from headrace.store.processes import Process
from headrace.store.task_rows import OfTable

log = logging.getLogger(__name__)

CONFLICT_WAIT_MAX_MS = 5 * 60_000  # the longest rest after a commit that others were faster than


def begin_commit(conn: Connection, table: LakeTable, process: Process, *, now_ms: int) -> None:
    """All that will come has come."""
    if lake.move(conn, table, TableStatus.COMMITTING, now_ms=now_ms):
        plan_commit(conn, process, table, now_ms=now_ms)
        seam("commit planned, in transaction")


def may_land(table: LakeTable, process: Process) -> bool:
    """Whether a commit of its running process has begun, and nobody knows yet how it ends."""
    return table.status is TableStatus.COMMITTING or process.settling


def plan_commit(
    conn: Connection, process: Process, table: LakeTable | None, *, now_ms: int
) -> None:
    """In the group that its table has now. A commit that is still to be claimed gives way."""
    known = table_tasks.states_of(conn, process.id)
    before = [task.id for task in known if task.kind is TaskKind.COMMIT]
    table_tasks.cancel(conn, before, because=MOVED, now_ms=now_ms)
    task_id = f"{process.id}-commit-{len(before) + 1}"
    tasks.plan(
        conn,
        task_id=task_id,
        kind=TaskKind.COMMIT,
        lane=Lane.CONTROL,
        group=table.group if table is not None else process.group,
        of=OfTable(process.table_id, process.id),
        now_ms=now_ms,
    )
    processes.change(conn, process.id, commit_task=task_id)


def committed(conn: Connection, process: Process, found: CommitResult, *, now_ms: int) -> None:
    """How a commit ended, whoever asked and however often. An ended process stays as it is."""
    if process.status is not ProcessStatus.RUNNING:
        return
    match found.outcome:
        case "COMMITTED":
            _succeeded(conn, process, found, now_ms=now_ms)
            seam("commit recorded, in transaction")
        case "GONE":
            because = "its table is gone, or was made anew"
            close_process(conn, process, ProcessStatus.CLOSED, because=because, now_ms=now_ms)
        case "ABORTED":
            because = "its token was spent by an abort: somebody had given it up"
            close_process(conn, process, ProcessStatus.FAILED, because=because, now_ms=now_ms)
        case "CONFLICT":
            first = next(iter(found.conflicts.values()), "no reason was told")
            because = f"nothing could be replaced, others changed every file first: {first}"
            close_process(conn, process, ProcessStatus.FAILED, because=because, now_ms=now_ms)
            processes.change(conn, process.id, leftovers=0, discard_at_ms=None)
            _try_again_soon(conn, process, now_ms=now_ms)
        case _:
            assert_never(found.outcome)


def _try_again_soon(conn: Connection, process: Process, *, now_ms: int) -> None:
    """A busy table is not a broken one: it does not rest for hours because others were faster."""
    table, at_most_ms = lake.get(conn, process.table_id), now_ms + CONFLICT_WAIT_MAX_MS
    if table is not None and table.not_before_ms > at_most_ms:
        lake.change(conn, table.id, not_before_ms=at_most_ms)


def _succeeded(conn: Connection, process: Process, found: CommitResult, *, now_ms: int) -> None:
    plan = processes.plan_of(conn, process.id)
    result: dict[str, object] = {
        "snapshot": found.snapshot,
        "conflicts": found.conflicts,
        "already": found.already,
        **_sizes_after(conn, process, found),
    }
    # What was staged for bins that conflict is deleted like that of a process without a commit.
    left = bool(found.conflicts)
    if not processes.end(
        conn,
        process,
        ProcessStatus.SUCCESS,
        now_ms=now_ms,
        result=result,
        leftovers=int(left),
        discard_at_ms=now_ms if left else None,
    ):
        return
    facts = {"table": process.identifier, "process_id": process.id, "snapshot": found.snapshot}
    log.info("process committed", extra={**facts, "conflicts": len(found.conflicts)})
    table = lake.lock(conn, process.table_id)
    if table is None:
        return
    done: Mapping[str, str] = plan.get("done", {}) if _is_whole(conn, process, found) else {}
    values: dict[str, object] = {
        "optimized_snapshot": found.snapshot,
        "optimized_at_ms": now_ms,
        "clocks": kept(_moved(clocks_for(conn, table), done, now_ms=now_ms)),
        "file_failures": _without(conn, table, process, found),
        "failures": 0,
        "error": None,
        "not_before_ms": 0,
    }
    if table.process_id == process.id and table.status is TableStatus.COMMITTING:
        again = to_be_found_again(now_ms)
        lake.release(conn, table, ProcessStatus.SUCCESS, now_ms=now_ms, **values, **again)
    else:  # it was settled: the table went on without it
        lake.change(conn, table.id, **values, pointer=None, due_at_ms=now_ms)


def _sizes_after(conn: Connection, process: Process, found: CommitResult) -> Mapping[str, int]:
    """What the files of its plan have become, as they were written; bins that were not replaced
    are as they were. Empty: nobody can tell. It is for people, and must not fail a commit."""
    if found.bins is None and found.already:
        return {}
    results = table_tasks.results(conn, process.id)
    files = size = 0
    for task in table_tasks.of_process(conn, process.id):
        made = _written(results.get(task.number or 0) or {})
        for each in map(BinTold.model_validate, task.payload.get("bins", ())):
            replaced = _is_replaced(each.number, found)
            if replaced and each.number not in made:
                return {}
            now = made[each.number] if replaced else (len(each.paths), each.bytes)
            files, size = files + now[0], size + now[1]
    return {"files_after": files, "bytes_after": size}


def _written(result: Mapping[str, Any]) -> Mapping[int, tuple[int, int]]:
    """Files and bytes that a rewrite task wrote, by bin number; a bin that says neither is not
    in it."""
    found: dict[int, tuple[int, int]] = {}
    for each in RewriteResult.model_validate(result).rewritten:
        match each:
            case {"number": int(number), "added": list(added), "bytes": int(size)}:
                found[number] = (len(cast("list[Any]", added)), size)
            case _:
                continue
    return found


def _is_whole(conn: Connection, process: Process, found: CommitResult) -> bool:
    """Whether all that was planned is replaced: only then are its partitions done with. A table
    that is asked later tells of no conflicts, only which bins are in it."""
    rewrites = [t for t in table_tasks.of_process(conn, process.id) if t.kind is TaskKind.REWRITE]
    if found.conflicts or any(task.status is not TaskStatus.SUCCESS for task in rewrites):
        return False
    if found.bins is None:
        return not found.already
    planned = {int(each["number"]) for task in rewrites for each in task.payload.get("bins", ())}
    return planned <= set(found.bins)


def _moved(clocks: Clocks, done: Mapping[str, str], *, now_ms: int) -> Clocks:
    """The clocks of the partitions that this process was the last for."""
    known = {key: Clock(*times) for key, times in clocks.items()}
    kinds = {key: OptimizingType[kind] for key, kind in done.items()}
    return {key: astuple(clock) for key, clock in moved(known, kinds, at_ms=now_ms).items()}


def _without(
    conn: Connection, table: LakeTable, process: Process, found: CommitResult
) -> Mapping[str, int]:
    """The files that it replaced are no more, so their failures are forgotten."""
    before = lake.file_failures_of(conn, table.id)
    if not before:
        return before
    gone = {
        path
        for task in table_tasks.of_process(conn, process.id)
        if task.status is TaskStatus.SUCCESS
        for each in task.payload.get("bins", ())
        if _is_replaced(int(each["number"]), found)
        for path in each["paths"]
    }
    return {path: count for path, count in before.items() if path not in gone}


def _is_replaced(number: int, found: CommitResult) -> bool:
    if found.bins is not None:
        return number in found.bins
    return not found.already and str(number) not in found.conflicts


def outcome_unknown(conn: Connection, process: Process, *, because: str, now_ms: int) -> None:
    """The commit could not be made, and the table could not be asked, for too long."""
    table = lake.get(conn, process.table_id)
    close_process(conn, process, ProcessStatus.FAILED, because=because, now_ms=now_ms)
    if process.settling and table is not None:  # its table is not in it any more
        failed(conn, table, because=because, now_ms=now_ms)
