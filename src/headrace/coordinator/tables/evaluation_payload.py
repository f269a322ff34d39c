"""What an EVALUATE task tells its worker: the tables that it still holds, as they are known.

When the clocks of all its tables exceed the limit of a payload, the tables beyond it are let go of;
they are due for another evaluation.
"""

from __future__ import annotations

from sqlalchemy import Connection

from headrace.coordinator.tables.table_state import clocks_for, left_out_of
from headrace.coordinator.tables.table_task import catalog_access, defaults_of_groups, identifier
from headrace.protocol.tables import CLOCKS_PER_EVALUATION_MAX, EvaluatePayload, ToEvaluate
from headrace.protocol.task_types import EvaluateOrder
from headrace.store.tables import due_tables, lake_tables
from headrace.store.tables.lake_tables import LakeTable
from headrace.store.tasks.tasks import Task


def shorten_evaluation(conn: Connection, task: Task, now_ms: int) -> None:
    """Let go of the tables whose clocks do not fit into the payload."""
    ids = EvaluateOrder.of(task.payload).tables
    clocks = due_tables.clocks_in(conn, ids, task_id=task.id)
    room, kept = CLOCKS_PER_EVALUATION_MAX, 0
    for place, table_id in enumerate(ids):
        if table_id not in clocks:
            continue  # dropped, or released from this evaluation
        room -= clocks[table_id]
        if kept and room < 0:
            due_tables.lock(conn, ids[place:])
            due_tables.let_go(conn, ids[place:], task_id=task.id, due_at_ms=now_ms)
            return
        kept += 1


def evaluation_payload(conn: Connection, task: Task, now_ms: int) -> EvaluatePayload:
    order = EvaluateOrder.of(task.payload)
    catalog, reach = catalog_access(conn, order.catalog)
    known = [lake_tables.get(conn, table_id) for table_id in order.tables]
    # Others were dropped, or released from this evaluation.
    held = [table for table in known if table is not None and table.task_id == task.id]
    return EvaluatePayload(
        **reach,
        defaults=dict(catalog.defaults),
        groups=defaults_of_groups(conn),
        now_ms=now_ms,
        tables=tuple(_to_evaluate(conn, table) for table in held),
    )


def _to_evaluate(conn: Connection, table: LakeTable) -> ToEvaluate:
    return ToEvaluate(
        table=identifier(table),
        pointer=table.pointer,
        look_at_ms=table.look_at_ms,
        clocks=clocks_for(conn, table),
        left_out=left_out_of(conn, table),
    )
