"""Workers: which processes have registered, what each can run, and which of them drain."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from sqlalchemy import Connection, bindparam, delete, func, insert, select, update

from headrace.model.task import Lane
from headrace.protocol.messages import PROTOCOL_VERSION
from headrace.store.core.prepared_statements import PreparedStatement, one_of
from headrace.store.tasks.schema import workers


@dataclass(frozen=True, slots=True)
class Worker:
    """A registered worker."""

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
    resource_id: str | None = None  # that it was started for
    launch: int = 0
    memory_mb: int = 0
    drain_since_ms: int = 0  # since when it is given no more tasks; 0: it does not drain
    protocol: int = PROTOCOL_VERSION  # the version that it speaks
    plugins_digest: str | None = None  # names what `plugins_of` gives; None: what came with 4

    def capacity(self, lane: Lane) -> int:
        """How many tasks it may hold in a lane; a worker that drains gets no more."""
        if self.drain_since_ms:
            return 0
        return self.slots if lane is Lane.SLOT else self.control_slots


# The fields of a Worker, in their order. The list of plug-ins is long, and rarely needed.
_COLUMNS = tuple(column for column in workers.c if column.name != "plugins")
_REGISTERED = PreparedStatement(select(workers.c.id).where(workers.c.id == bindparam("id")))
_REGISTER = PreparedStatement(
    insert(workers).values({name: bindparam(name) for name in workers.c.keys()})  # noqa: SIM118
)
_ALL = PreparedStatement(select(*_COLUMNS).order_by(workers.c.id))
_LOCK = PreparedStatement(
    select(*_COLUMNS).where(one_of(workers.c.id, "ids")).order_by(workers.c.id).with_for_update()
)
# What a worker that is known may say anew of itself.
_INTRODUCED = ("version", "protocol", "plugins", "plugins_digest")
_INTRODUCE = PreparedStatement(
    update(workers)
    .where(workers.c.id == bindparam("worker"))
    .values({name: bindparam(f"new_{name}") for name in _INTRODUCED})
)
_PROTOCOL = PreparedStatement(
    update(workers)
    .where(workers.c.id == bindparam("worker"))
    .values(protocol=bindparam("new_protocol"))
)
_PLUGINS = PreparedStatement(
    select(workers.c.plugins).where(workers.c.plugins_digest == bindparam("digest")).limit(1)
)
_UNREGISTER = PreparedStatement(delete(workers).where(workers.c.id == bindparam("id")))
_SEEN = PreparedStatement(
    update(workers).where(one_of(workers.c.id, "ids")).values(seen_at_ms=bindparam("now_ms"))
)
_SLOTS = PreparedStatement(
    select(workers.c.group_name, func.sum(workers.c.slots))
    .where(workers.c.drain_since_ms == 0)
    .group_by(workers.c.group_name)
    .order_by(workers.c.group_name)
)


def register(conn: Connection, worker: Worker, plugins: str | None = None) -> None:
    """Add a worker. A second call for the same process changes only what it says of itself in a
    newer version of the protocol. `plugins`: the text that its digest is of."""
    if is_registered(conn, worker.id):
        said = (worker.version, worker.protocol, plugins, worker.plugins_digest)
        values = {f"new_{name}": value for name, value in zip(_INTRODUCED, said, strict=True)}
        _INTRODUCE.change(conn, {"worker": worker.id, **values})
    else:
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
                "protocol": worker.protocol,
                "plugins": plugins,
                "plugins_digest": worker.plugins_digest,
            },
        )


def note_protocol(conn: Connection, worker_id: str, protocol: int) -> None:
    """Record the version that a worker speaks from now on."""
    _PROTOCOL.change(conn, {"worker": worker_id, "new_protocol": protocol})


def lock(conn: Connection, ids: Collection[str]) -> Mapping[str, Worker]:
    """Those of `ids` that are registered; none of them can be unregistered before we commit."""
    return {row[0]: Worker(*row) for row in _LOCK.rows(conn, {"ids": sorted(ids)})}


def unregister(conn: Connection, worker_id: str) -> bool:
    """Delete a worker. False: it was not registered."""
    return _UNREGISTER.change(conn, {"id": worker_id}) == 1


def plugins_of(conn: Connection, digest: str) -> str | None:
    """The text that this is a digest of; None: no worker that registered it is left."""
    row = _PLUGINS.rows(conn, {"digest": digest})
    return row[0][0] if row else None


def of_group(conn: Connection, group: str) -> Sequence[Worker]:
    query = select(*_COLUMNS).where(workers.c.group_name == group).order_by(workers.c.id)
    return [Worker(*row) for row in conn.execute(query)]


def of_resource(conn: Connection, resource_id: str) -> Worker | None:
    """The worker that registered for the latest launch of the resource, if there is one."""
    query = select(*_COLUMNS).where(workers.c.resource_id == resource_id).order_by(workers.c.launch)
    rows = conn.execute(query).all()
    return Worker(*rows[-1]) if rows else None


def drain(conn: Connection, worker_id: str, *, now_ms: int) -> bool:
    """Give the worker no more tasks. False: it is not registered, or drains already."""
    fresh = (workers.c.id == worker_id, workers.c.drain_since_ms == 0)
    return conn.execute(update(workers).where(*fresh).values(drain_since_ms=now_ms)).rowcount == 1


def resume(conn: Connection, worker_id: str) -> bool:
    """Let the worker be given tasks again. False: it is not registered, or does not drain."""
    drains = (workers.c.id == worker_id, workers.c.drain_since_ms != 0)
    return conn.execute(update(workers).where(*drains).values(drain_since_ms=0)).rowcount == 1


def note_seen(conn: Connection, ids: Collection[str], *, now_ms: int) -> None:
    """Record that these workers were heard of."""
    _SEEN.change(conn, {"ids": sorted(ids), "now_ms": now_ms})


def registered(conn: Connection) -> Sequence[Worker]:
    """All workers."""
    return [Worker(*row) for row in _ALL.rows(conn)]


def is_registered(conn: Connection, worker_id: str) -> bool:
    return _REGISTERED.row(conn, {"id": worker_id}) is not None


def slots_by_group(conn: Connection) -> Mapping[str, int]:
    """Slots by group, without workers that drain: they get no more tasks, so nothing may count
    on them."""
    return {group: int(slots) for group, slots in _SLOTS.rows(conn)}
