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
    resource_id: str | None = None  # what it was started for
    launch: int = 0
    memory_mb: int = 0
    drain_since_ms: int = 0  # since when it is given nothing more; 0: it is

    def capacity(self, lane: Lane) -> int:
        """How many tasks it may be given; one that drains gets nothing more."""
        if self.drain_since_ms:
            return 0
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
    .where(workers.c.drain_since_ms == 0)
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
                "resource_id": worker.resource_id,
                "launch": worker.launch,
                "memory_mb": worker.memory_mb,
                "drain_since_ms": worker.drain_since_ms,
            },
        )


def lock(conn: Connection, ids: Collection[str]) -> Mapping[str, Worker]:
    """Those of `ids` that are registered; none of them can be unregistered before we commit."""
    return {row[0]: Worker(*row) for row in _LOCK.rows(conn, {"ids": sorted(ids)})}


def unregister(conn: Connection, worker_id: str) -> bool:
    return _UNREGISTER.change(conn, {"id": worker_id}) == 1


def of_group(conn: Connection, group: str) -> Sequence[Worker]:
    found = select(workers).where(workers.c.group_name == group).order_by(workers.c.id)
    return [Worker(*row) for row in conn.execute(found)]


def of_resource(conn: Connection, resource_id: str) -> Worker | None:
    """The one that registered for it, if there is one."""
    found = select(workers).where(workers.c.resource_id == resource_id).order_by(workers.c.launch)
    rows = conn.execute(found).all()
    return Worker(*rows[-1]) if rows else None


def drain(conn: Connection, worker_id: str, *, now_ms: int) -> bool:
    """Give it nothing more. False: it is not registered, or drains already."""
    fresh = (workers.c.id == worker_id, workers.c.drain_since_ms == 0)
    return conn.execute(update(workers).where(*fresh).values(drain_since_ms=now_ms)).rowcount == 1


def resume(conn: Connection, worker_id: str) -> bool:
    """Let it be given work again. False: it is not registered, or does not drain."""
    drains = (workers.c.id == worker_id, workers.c.drain_since_ms != 0)
    return conn.execute(update(workers).where(*drains).values(drain_since_ms=0)).rowcount == 1


def seen(conn: Connection, ids: Collection[str], *, now_ms: int) -> None:
    _SEEN.change(conn, {"ids": sorted(ids), "now_ms": now_ms})


def registered(conn: Connection) -> Sequence[Worker]:
    return [Worker(*row) for row in _ALL.rows(conn)]


def is_registered(conn: Connection, worker_id: str) -> bool:
    return _REGISTERED.row(conn, {"id": worker_id}) is not None


def slots_by_group(conn: Connection) -> Mapping[str, int]:
    """Without those that drain: nothing is given to them, so nothing may count on them."""
    return {group: int(slots) for group, slots in _SLOTS.rows(conn)}
