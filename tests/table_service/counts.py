"""The coordinator's half: every table that was never counted is counted once."""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import Connection, Engine, select

from headrace.clock import Clock
from headrace.coordinator.planned_tasks import plan_task
from headrace.coordinator.tables.table_task import (
    EndedTask,
    TableTask,
    catalog_access,
    identifier,
    table_of,
)
from headrace.model.ids import Ids
from headrace.model.task import TaskOrder
from headrace.store.core.engine import reading
from headrace.store.tables import lake_tables
from headrace.store.tables.schema import lake_tables as rows
from headrace.store.tasks import tasks
from headrace.store.tasks.tasks import OfTable, Task
from tests.table_service.messages import COUNT, Counted, CountPayload


class Counts:
    """Keys are table ids."""

    name = "counts"

    def __init__(self, clock: Clock, _ids: Ids) -> None:
        self._clock = clock

    def keys(self, engine: Engine) -> Sequence[str]:
        with reading(engine) as conn:
            return list(conn.execute(select(rows.c.id).order_by(rows.c.id)).scalars())

    def due(self, conn: Connection, key: str) -> bool:
        return tasks.get(conn, f"{key}-count") is None

    def reconcile(self, conn: Connection, key: str) -> None:
        table = lake_tables.lock(conn, key)
        if table is not None and self.due(conn, key):
            plan_task(
                conn,
                COUNT,
                TaskOrder(retry_times=1),
                task_id=f"{key}-count",
                group=table.group,
                of=OfTable(key),
                now_ms=self._clock.wall_ms(),
            )


def _payload(conn: Connection, task: Task, _now_ms: int) -> CountPayload:
    table = table_of(conn, task)
    return CountPayload(**catalog_access(conn, table.catalog)[1], table=identifier(table))


def _counted(conn: Connection, ended: EndedTask[Counted], now_ms: int) -> None:
    ended.finish(conn, now_ms=now_ms)


COUNTING = TableTask(COUNT, build=_payload, apply=_counted, loop=Counts)
