"""Workers: who registered, and what they are."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, Row, delete, func, insert, select, update

from headrace.model.task import Lane
from headrace.store.schema import workers


@dataclass(frozen=True, slots=True)
class Worker:
    id: str
    group: str
    slots: int
    control_slots: int
    version: str
    host: str
    pid: int
    spark_application: str
    registered_at_ms: int
    seen_at_ms: int

    def capacity(self, lane: Lane) -> int:
        return self.slots if lane is Lane.SLOT else self.control_slots


def _worker(row: Row[Any]) -> Worker:
    return Worker(*row)


def register(conn: Connection, worker: Worker) -> None:
    """Add a worker. Said twice by the same process, the second one changes nothing."""
    known = conn.scalar(select(workers.c.id).where(workers.c.id == worker.id))
    if known is None:
        conn.execute(
            insert(workers).values(
                id=worker.id,
                group_name=worker.group,
                slots=worker.slots,
                control_slots=worker.control_slots,
                version=worker.version,
                host=worker.host,
                pid=worker.pid,
                spark_application=worker.spark_application,
                registered_at_ms=worker.registered_at_ms,
                seen_at_ms=worker.seen_at_ms,
            )
        )


def lock(conn: Connection, ids: Collection[str]) -> Mapping[str, Worker]:
    """Those of `ids` that are registered; none of them can be unregistered before we commit."""
    rows = conn.execute(
        select(workers).where(workers.c.id.in_(ids)).order_by(workers.c.id).with_for_update()
    )
    return {row.id: _worker(row) for row in rows}


def unregister(conn: Connection, worker_id: str) -> bool:
    return conn.execute(delete(workers).where(workers.c.id == worker_id)).rowcount == 1


def seen(conn: Connection, ids: Collection[str], *, now_ms: int) -> None:
    conn.execute(update(workers).where(workers.c.id.in_(ids)).values(seen_at_ms=now_ms))


def registered(conn: Connection) -> Sequence[Worker]:
    return [_worker(row) for row in conn.execute(select(workers).order_by(workers.c.id))]


def is_registered(conn: Connection, worker_id: str) -> bool:
    return conn.scalar(select(workers.c.id).where(workers.c.id == worker_id)) is not None


def slots_by_group(conn: Connection) -> Mapping[str, int]:
    rows = conn.execute(
        select(workers.c.group_name, func.sum(workers.c.slots)).group_by(workers.c.group_name)
    )
    return {group: int(slots) for group, slots in rows}
