"""What one look at a table changes: what is known of it, whether it waits, when it is due again.

Pending input is never lost (T2): only a later look that found none takes a table back from PENDING,
or that somebody switched its optimizing off; then the input is kept, and waits for the switch.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

from sqlalchemy import Connection
from sqlalchemy.exc import DBAPIError, OperationalError

from headrace.coordinator.tables.closing import close_process
from headrace.coordinator.tables.dropping import drop_table
from headrace.coordinator.tables.knowing import clocks_for, kept
from headrace.errors import Fenced, Unavailable
from headrace.model.tables.backoff import wait_ms
from headrace.model.tables.refresh import BASE_INTERVAL_MS, Pace
from headrace.model.tables.status import ProcessStatus, TableStatus
from headrace.model.text import without_nul
from headrace.protocol.tables import Clocks, EvaluatedTable
from headrace.store import catalogs, lake, lake_turns, processes
from headrace.store.lake import LakeTable
from headrace.store.tasks import Task

log = logging.getLogger(__name__)

# How the error of a table begins that could not be looked at. A look that succeeds takes back such
# an error and its failures; those of its processes stay, or they would never count up.
NOT_EVALUATED = "it can't be evaluated: "


def apply_apart(
    conn: Connection, task: Task, table_id: str, told: EvaluatedTable | None, *, now_ms: int
) -> None:
    """One table of an evaluation, locked. Of one that is in another by now nothing is taken."""
    try:
        with conn.begin_nested():
            table = lake.get(conn, table_id)
            if table is not None and table.task_id == task.id:
                base_ms = int(task.payload.get("refresh_ms", BASE_INTERVAL_MS))
                _apply(conn, table, told, base_ms=base_ms, now_ms=now_ms)
    except (Fenced, Unavailable, OperationalError):
        raise  # the store is away, and no table is to blame
    except Exception as error:
        log.exception("evaluation of a table broken off", extra={"table_id": table_id})
        # An error of the driver repeats the statement with all its values; its reason is enough.
        reason = error.orig if isinstance(error, DBAPIError) else error
        failed(conn, table_id, 0, without_nul(repr(reason)), now_ms=now_ms)


def failed(conn: Connection, table_id: str, before: int, error: str, *, now_ms: int) -> None:
    """Not evaluated, `before` times in a row before this: looked at again later and later."""
    failures = before + 1
    lake.change(
        conn,
        table_id,
        task_id=None,
        failures=failures,
        error=NOT_EVALUATED + error,
        due_at_ms=now_ms + wait_ms(failures),
    )


def catalog_away(
    conn: Connection, name: str, ids: Sequence[str], task: Task, error: str, *, now_ms: int
) -> None:
    """No table is to blame, and none is told anything: those that were not looked at before are
    looked at later."""
    catalog = catalogs.get(conn, name)
    catalogs.change(conn, name, error=error)
    again_ms = now_ms + wait_ms(max(1, catalog.failures if catalog else 0))
    lake_turns.let_go(conn, ids, task_id=task.id, due_at_ms=again_ms)
    log.warning("catalog away", extra={"catalog": name, "reason": error})


def _apply(
    conn: Connection, table: LakeTable, told: EvaluatedTable | None, *, base_ms: int, now_ms: int
) -> None:
    if told is None:
        error = "its worker said nothing of it"
        failed(conn, table.id, table.failures, error, now_ms=now_ms)
    elif told.gone:
        because = f"there is no table {table.identifier} any more"
        drop_table(conn, table.id, because=because, now_ms=now_ms)
    elif told.error is not None:
        failed(conn, table.id, table.failures, told.error, now_ms=now_ms)
    elif told.unchanged:
        _unchanged(conn, table, told, base_ms=base_ms, now_ms=now_ms)
    else:
        _looked(conn, table, told, base_ms=base_ms, now_ms=now_ms)


def _unchanged(
    conn: Connection, table: LakeTable, told: EvaluatedTable, *, base_ms: int, now_ms: int
) -> None:
    """What was found still holds, its pending input as well. Its settings may be others: a catalog
    gives some to its tables."""
    demand = table.pending_since_ms is not None
    pace = _pace(told, base_ms)
    values = _settings(told) | _when(table, pace, table.look_at_ms, demand=demand, now_ms=now_ms)
    if told.chosen.enabled and not table.enabled:  # while it was not, nobody looked for input
        values |= {"pointer": None, "due_at_ms": now_ms}
    lake.change(conn, table.id, **values, **_mended(table))
    _stand(conn, table, told, waits=demand, now_ms=now_ms)


def _looked(
    conn: Connection, table: LakeTable, told: EvaluatedTable, *, base_ms: int, now_ms: int
) -> None:
    forgotten: dict[str, object] = _mended(table)
    clocks: Clocks = clocks_for(conn, table)
    if table.uuid is not None and told.uuid != table.uuid:
        table, forgotten, clocks = _begun_anew(conn, table, now_ms=now_ms), _NOTHING_KNOWN, {}
    seen: Clocks = dict.fromkeys(told.seen, (None, None, None, now_ms))
    values = {**forgotten, **_facts(table, told, base_ms=base_ms, now_ms=now_ms)}
    if seen or forgotten is _NOTHING_KNOWN:
        values["clocks"] = kept({**seen, **clocks})
    if table.status in _AT_REST:
        values |= _pending(table, told, now_ms=now_ms)
    lake.change(conn, table.id, **values)
    _stand(conn, table, told, waits=told.pending is not None, now_ms=now_ms)


_AT_REST = frozenset({TableStatus.IDLE, TableStatus.PENDING})
_NOTHING_KNOWN: dict[str, object] = {
    "failures": 0,
    "error": None,
    "not_before_ms": 0,
    "file_failures": {},
    "optimized_snapshot": None,
    "optimized_at_ms": None,
}


def _begun_anew(conn: Connection, table: LakeTable, *, now_ms: int) -> LakeTable:
    """It was dropped and made anew: nothing that was known of the other holds for this one."""
    log.info("another table of the same name", extra={"table": table.identifier})
    running = processes.running_of(conn, table.id)
    process = processes.lock(conn, running.id) if running is not None else None
    if process is not None and process.status is ProcessStatus.RUNNING:
        because = "its table was dropped and made anew"
        close_process(conn, process, ProcessStatus.CLOSED, because=because, now_ms=now_ms)
    lake.change(conn, table.id, pending_since_ms=None)
    return lake.get(conn, table.id) or table


def _facts(table: LakeTable, told: EvaluatedTable, *, base_ms: int, now_ms: int) -> dict[str, Any]:
    demand, pace = told.pending is not None, _pace(told, base_ms)
    return {
        "uuid": told.uuid,
        "pointer": told.pointer,
        "snapshot": told.snapshot,
        "look_at_ms": told.look_at_ms,
        "summary": told.summary.model_dump(mode="json") if told.summary else None,
        **_settings(told),
        **_when(table, pace, told.look_at_ms, demand=demand, now_ms=now_ms),
    }


def _settings(told: EvaluatedTable) -> dict[str, Any]:
    return {
        "group_name": told.chosen.group,
        "enabled": int(told.chosen.enabled),
        "quota": told.chosen.quota,
        "min_plan_interval_ms": told.chosen.min_plan_interval_ms,
        "flaws": list(told.flaws),
    }


def _pace(told: EvaluatedTable, base_ms: int) -> Pace:
    return Pace(told.chosen.refresh_max_interval_ms, told.chosen.refresh_step_ms, base_ms)


def _when(
    table: LakeTable,
    pace: Pace,
    look_at_ms: int | None,
    *,
    demand: bool,
    now_ms: int,
) -> dict[str, Any]:
    """That it was looked at, and when it is again."""
    interval_ms = pace.next_interval_ms(table.interval_ms, demand=demand)
    return {
        "task_id": None,
        "evaluated_at_ms": now_ms,
        "interval_ms": interval_ms,
        "due_at_ms": pace.due_at_ms(now_ms, interval_ms, look_at_ms=look_at_ms),
    }


def _pending(table: LakeTable, told: EvaluatedTable, *, now_ms: int) -> dict[str, Any]:
    """Of a table in a process: what it found is being rewritten, and is looked at anew after it."""
    if told.pending is None:
        return {"pending": None, "pending_since_ms": None, "benefit": 0.0}
    since_ms = now_ms if table.pending_since_ms is None else table.pending_since_ms
    pending = told.pending.model_dump(mode="json")
    return {"pending": pending, "pending_since_ms": since_ms, "benefit": told.pending.benefit}


def _mended(table: LakeTable) -> dict[str, object]:
    """It could be looked at again."""
    if table.error is None or not table.error.startswith(NOT_EVALUATED):
        return {}
    return {"failures": 0, "error": None}


def _stand(
    conn: Connection, table: LakeTable, told: EvaluatedTable, *, waits: bool, now_ms: int
) -> None:
    """Between IDLE and PENDING. Whoever asked to optimize the table now is not told that there is
    nothing to do: planning finds that out."""
    may_optimize = told.chosen.enabled and not table.wanted_paused
    if table.status is TableStatus.IDLE and waits and may_optimize:
        lake.move(conn, table, TableStatus.PENDING, now_ms=now_ms, pending_since_ms=now_ms)
        return
    nothing = not waits and table.wanted_type is None
    if table.status is TableStatus.PENDING and (nothing or not may_optimize):
        lake.move(conn, table, TableStatus.IDLE, now_ms=now_ms)
