"""Workers: who registered, and what they are."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from sqlalchemy import Connection, bindparam, delete, func, insert, select, update

from headrace.model.task import Lane
from headrace.store.prepared import Prepared, one_of
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


_REGISTERED = Prepared(select(workers.c.id).where(workers.c.id == bindparam("id")))
_REGISTER = Prepared(
    insert(workers).values({name: bindparam(name) for name in workers.c.keys()})  # noqa: SIM118
)
_ALL = Prepared(select(workers).order_by(workers.c.id))
_LOCK = Prepared(
    select(workers).where(one_of(workers.c.id, "ids")).order_by(workers.c.id).with_for_update()
)
_UNREGISTER = Prepared(delete(workers).where(workers.c.id == bindparam("id")))
_SEEN = Prepared(
    update(workers).where(one_of(workers.c.id, "ids")).values(seen_at_ms=bindparam("now_ms"))
)
_SLOTS = Prepared(
    select(workers.c.group_name, func.sum(workers.c.slots))
    .group_by(workers.c.group_name)
    .order_by(workers.c.group_name)
)


def register(conn: Connection, worker: Worker) -> None:
    """Add a worker. Said twice by the same process, the second one changes nothing."""
    if not is_registered(conn, worker.id):
        _REGISTER.change(
            conn,
            {
                "id": worker.id,
                "group_name": worker.group,
                "slots": worker.slots,
                "control_slots": worker.control_slots,
                "version": worker.version,
                "host": worker.host,
                "pid": worker.pid,
                "spark_application": worker.spark_application,
                "registered_at_ms": worker.registered_at_ms,
                "seen_at_ms": worker.seen_at_ms,
            },
        )


def lock(conn: Connection, ids: Collection[str]) -> Mapping[str, Worker]:
    """Those of `ids` that are registered; none of them can be unregistered before we commit."""
    return {row[0]: Worker(*row) for row in _LOCK.rows(conn, {"ids": sorted(ids)})}


def unregister(conn: Connection, worker_id: str) -> bool:
    return _UNREGISTER.change(conn, {"id": worker_id}) == 1


def seen(conn: Connection, ids: Collection[str], *, now_ms: int) -> None:
    _SEEN.change(conn, {"ids": sorted(ids), "now_ms": now_ms})


def registered(conn: Connection) -> Sequence[Worker]:
    return [Worker(*row) for row in _ALL.rows(conn)]


def is_registered(conn: Connection, worker_id: str) -> bool:
    return _REGISTERED.row(conn, {"id": worker_id}) is not None


def slots_by_group(conn: Connection) -> Mapping[str, int]:
    return {group: int(slots) for group, slots in _SLOTS.rows(conn)}
