"""How every task is planned: with an order of the type that its kind has, in its lane."""

from __future__ import annotations

from typing import Any

from sqlalchemy import Connection

from headrace.protocol.task_types import Order, TaskType
from headrace.store.tasks import tasks
from headrace.store.tasks.tasks import NO_TABLE, OfTable


def plan_task(
    conn: Connection,
    kind: TaskType[Order, Any, Any],
    order: Order,
    *,
    task_id: str,
    group: str,
    now_ms: int,
    job_id: str | None = None,
    pipeline: int | None = None,
    needs: str | None = None,
    of: OfTable = NO_TABLE,
) -> None:
    """Add a task that nobody holds yet."""
    tasks.plan(
        conn,
        task_id=task_id,
        kind=kind.kind,
        lane=kind.lane,
        group=group,
        job_id=job_id,
        pipeline=pipeline,
        payload=order.stored(),
        needs=needs,
        of=of,
        now_ms=now_ms,
    )
