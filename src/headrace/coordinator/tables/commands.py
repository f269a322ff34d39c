"""What a person may ask about lake tables. As for jobs, a command writes what is *wanted*, on any
node, and says why it can't be had and what to do instead; the leader does it.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass

from sqlalchemy import Connection, Engine

from headrace.clock import Clock
from headrace.coordinator.tables.catalog_commands import CatalogCommands
from headrace.coordinator.tables.committing import may_land
from headrace.coordinator.tables.known import known_table
from headrace.errors import BadSetting, NotFound, Refused, Unavailable
from headrace.jobfile.suggest import hint
from headrace.model.ids import Ids
from headrace.model.names import check_name
from headrace.model.tables.schedule import OCCUPATION_WINDOW_MS
from headrace.model.tables.settings import property_of
from headrace.model.tables.status import (
    OPTIMIZING,
    OptimizingType,
    ProcessStatus,
    TableStatus,
)
from headrace.model.task import Lane, TaskKind
from headrace.store import (
    blockers,
    catalogs,
    lake,
    lake_lists,
    leases,
    processes,
    table_tasks,
    tasks,
    wake,
)
from headrace.store.blockers import Blocker
from headrace.store.engine import reading
from headrace.store.lake_rows import LakeTable
from headrace.store.tasks import OfTable, Task
from headrace.store.tx import in_tx

BLOCK_MIN_S, BLOCK_MAX_S = 1, 24 * 3600
BLOCKERS_MAX = 20  # of one table at a time
REASON_MAX = 500  # characters
PLANS_READ_MAX = 1000  # of all groups, dry and real
DRY_PLANS_MAX = 10  # that wait or run at a time: they share control slots with real ones
DRY_PLAN_MAX_MS = 600_000  # one that is not made by then is given up: nobody waits for it


@dataclass(frozen=True, slots=True)
class Asked:
    """A table after a command, and whether the command changed anything."""

    table: LakeTable
    changed: bool


@dataclass(frozen=True, slots=True)
class Blocked:
    blocker: Blocker
    # The process whose commit had begun before: nobody can hold it back any more.
    committing: int | None = None


class TableCommands:
    def __init__(
        self, engine: Engine, clock: Clock, ids: Ids, *, stopping: threading.Event | None = None
    ) -> None:
        self._engine, self._clock, self._ids = engine, clock, ids
        self._stopping = stopping or threading.Event()
        self.catalogs = CatalogCommands(engine, clock, stopping=self._stopping)

    def now_ms(self) -> int:
        """The time of this node, for whoever shows how far away another is."""
        return self._clock.wall_ms()

    def optimize(self, identifier: str, kind: OptimizingType) -> Asked:
        """Have a table optimized now, at least so thoroughly. Said twice is said once."""

        def work(conn: Connection) -> Asked:
            table = _locked(conn, identifier)
            _check_may_optimize(conn, table)
            running = processes.running_of(conn, table.id)
            under_way = running is not None and not running.settling and running.type >= kind
            asked = table.wanted_type is not None and table.wanted_type >= kind
            if under_way or asked:
                return Asked(table, changed=False)
            # A person says now: what failed before is not waited for.
            lake.change(conn, table.id, wanted_type=kind.name, not_before_ms=0)
            wake.notify(conn)
            return Asked(known_table(conn, identifier), changed=True)

        return in_tx(self._engine, work, stop=self._stopping)

    def cancel(self, identifier: str) -> Asked:
        """End the process of a table, and withdraw the wish for one. Without either nothing is
        changed: it has ended, or never began."""

        def work(conn: Connection) -> Asked:
            # A process before its table, as everybody locks them: nobody waits in a circle.
            found = processes.running_of(conn, known_table(conn, identifier).id)
            running = processes.lock(conn, found.id) if found is not None else None
            table = _locked(conn, identifier)
            if running is not None and running.status is ProcessStatus.RUNNING:
                _check_can_cancel(table, running.number, settling=running.settling)
            changed = running is not None and processes.want_cancel(conn, running.id)
            if table.wanted_type is not None:
                lake.change(conn, table.id, wanted_type=None)
                changed = True
            wake.notify(conn)
            return Asked(known_table(conn, identifier), changed=changed)

        return in_tx(self._engine, work, stop=self._stopping)

    def pause(self, identifier: str) -> Asked:
        """Leave a table alone until `resume`; a process that runs is closed."""
        return self._want_paused(identifier, paused=True)

    def resume(self, identifier: str) -> Asked:
        """Let it be optimized again; it is looked at now."""
        return self._want_paused(identifier, paused=False)

    def _want_paused(self, identifier: str, *, paused: bool) -> Asked:
        def work(conn: Connection) -> Asked:
            table = _locked(conn, identifier)
            if table.wanted_paused == paused:
                return Asked(table, changed=False)
            wanted: dict[str, object] = {"wanted_paused": int(paused)}
            at_once_ms = leases.at_once_ms(conn, now_ms=self._clock.wall_ms())
            wanted |= {"wanted_type": None} if paused else {"due_at_ms": at_once_ms}
            lake.change(conn, table.id, **wanted)
            wake.notify(conn)
            return Asked(known_table(conn, identifier), changed=True)

        return in_tx(self._engine, work, stop=self._stopping)

    def plan(self, identifier: str, kind: OptimizingType | None) -> str:
        """Have it planned, with nothing done about it; `dry_plan` has the answer.

        Asked again while the first is under way, it is the same one.
        """
        task_id = self._ids.new()

        def work(conn: Connection) -> str:
            table = _locked(conn, identifier)
            at_least = kind.name if kind is not None else None
            for task in lake_lists.open_plans(conn, table_id=table.id, most=DRY_PLANS_MAX):
                if _is_dry(task) and task.payload.get("at_least") == at_least:
                    return task.id
            now_ms = self._clock.wall_ms()
            _check_room(conn, now_ms=leases.at_once_ms(conn, now_ms=now_ms))
            tasks.plan(
                conn,
                task_id=task_id,
                kind=TaskKind.PLAN,
                lane=Lane.CONTROL,
                group=table.group,
                payload={"dry": True, "at_least": at_least, "retry_times": 0},
                of=OfTable(table.id),
                now_ms=leases.lasts_from_ms(conn, now_ms=now_ms),
            )
            wake.notify(conn)
            return task_id

        return in_tx(self._engine, work, stop=self._stopping)

    def dry_plan(self, identifier: str, task_id: str) -> Task:
        with reading(self._engine) as conn:
            table = known_table(conn, identifier)
            task = tasks.get(conn, task_id)
        if task is None or not _is_dry(task) or task.table_id != table.id:
            raise NotFound(
                "dry plan",
                task_id,
                way_out=f"those of table {identifier!r} are kept for "
                f"{OCCUPATION_WINDOW_MS // 60_000} minutes; `headrace table plan {identifier}` "
                "makes one",
            )
        return task

    def block(self, identifier: str, name: str, *, reason: str, seconds: int) -> Blocked:
        """Keep a table from being planned and committed for so long. The same name again renews
        it, from now on. A commit that has begun is not held back, and is told."""
        _check_blocker(name, reason, seconds)

        def work(conn: Connection) -> Blocked:
            table = _locked(conn, identifier)
            # Through a node whose clock is ahead it lasts longer, and can be taken back.
            now_ms = leases.lasts_from_ms(conn, now_ms=self._clock.wall_ms())
            holding = [each.name for each in blockers.of(conn, table.id, now_ms=now_ms)]
            if name not in holding and len(holding) >= BLOCKERS_MAX:
                raise Refused(
                    f"table {identifier!r} has {BLOCKERS_MAX} blockers, the most that there may "
                    "be; renew one of these, or wait until one expires: " + ", ".join(holding)
                )
            until_ms = now_ms + 1000 * seconds
            blockers.block(conn, table.id, name, reason=reason, until_ms=until_ms, now_ms=now_ms)
            held = blockers.of(conn, table.id, now_ms=now_ms)
            mine = next(each for each in held if each.name == name)
            running = processes.running_of(conn, table.id)
            begun = running if running is not None and may_land(table, running) else None
            return Blocked(mine, begun.number if begun is not None else None)

        return in_tx(self._engine, work, stop=self._stopping)

    def unblock(self, identifier: str, name: str) -> None:
        def work(conn: Connection) -> None:
            table = _locked(conn, identifier)
            now_ms = self._clock.wall_ms()
            if not blockers.unblock(conn, table.id, name):
                holding = [each.name for each in blockers.of(conn, table.id, now_ms=now_ms)]
                raise NotFound(
                    f"blocker of table {identifier!r}",
                    name,
                    way_out=f"it may have expired; {hint(name, holding, noun='blockers')}",
                )
            wake.notify(conn)

        in_tx(self._engine, work, stop=self._stopping)


def _locked(conn: Connection, identifier: str) -> LakeTable:
    """The table as nobody changes it meanwhile."""
    table = lake.lock(conn, known_table(conn, identifier).id)
    return table or known_table(conn, identifier)  # dropped between the two: then it raises


def _is_dry(task: Task) -> bool:
    return task.kind is TaskKind.PLAN and bool(task.payload.get("dry"))


def _check_may_optimize(conn: Connection, table: LakeTable) -> None:
    name = table.identifier
    if table.wanted_paused:
        raise Refused(
            f"table {name!r} is paused; `headrace table resume {name}` lets it be optimized again"
        )
    if not table.enabled:
        enabled = property_of("enabled")
        raise Refused(
            f"table {name!r} has {enabled} = false, by its own properties or by the defaults of "
            f"its catalog; set it with ALTER TABLE {name} SET TBLPROPERTIES ('{enabled}'='true')"
        )
    catalog = catalogs.get(conn, table.catalog)
    if catalog is not None and catalog.wanted_removed:
        raise Refused(f"table {name!r} goes with its catalog, {catalog.name!r}, which is removed")


def _check_can_cancel(table: LakeTable, number: int, *, settling: bool) -> None:
    if settling or table.status not in OPTIMIZING | {TableStatus.PLANNING}:
        doing = "settling" if settling else "committing"
        raise Refused(
            f"process {number} of table {table.identifier!r} is {doing}: its commit may have "
            f"landed, so it is not canceled any more. `headrace table history {table.identifier}` "
            "shows how it ends"
        )


def _check_room(conn: Connection, *, now_ms: int) -> None:
    old = lake_lists.open_plans(conn, until_ms=now_ms - DRY_PLAN_MAX_MS, most=PLANS_READ_MAX)
    because = f"no worker made this plan within {DRY_PLAN_MAX_MS // 60_000} minutes"
    table_tasks.cancel(conn, [t.id for t in old if _is_dry(t)], because=because, now_ms=now_ms)
    waiting = lake_lists.open_plans(conn, most=PLANS_READ_MAX)
    if sum(map(_is_dry, waiting)) >= DRY_PLANS_MAX:
        raise Unavailable(
            f"{DRY_PLANS_MAX} dry plans are under way, the most that there may be; ask again later"
        )


def _check_blocker(name: str, reason: str, seconds: int) -> None:
    check_name("blocker name", name)
    if not BLOCK_MIN_S <= seconds <= BLOCK_MAX_S:
        raise BadSetting(
            f"a table can be blocked for {BLOCK_MIN_S} to {BLOCK_MAX_S} seconds, and not for "
            f"{seconds}; a blocker is renewed by asking for it again"
        )
    if not reason.strip() or len(reason) > REASON_MAX or "\0" in reason:
        raise BadSetting(
            f"a blocker needs a reason that others understand, of up to {REASON_MAX} characters"
        )
