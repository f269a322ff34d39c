"""Commands about lake tables: optimize, cancel, pause and resume, plan (dry), block and unblock.

As for jobs, a command writes what is *wanted*, on any node; the leader acts on it. A command that
can't be carried out says why, and what to do instead. A table name that is not known is answered
with the name that was probably meant.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass

from sqlalchemy import Connection, Engine

from headrace.clock import Clock
from headrace.coordinator.planned_tasks import plan_task
from headrace.coordinator.tables.catalog_commands import CatalogCommands
from headrace.coordinator.tables.commits import may_land
from headrace.errors import BadSetting, NotFound, Refused, Unavailable
from headrace.model.ids import Ids, check_name
from headrace.model.tables.schedule import OCCUPATION_WINDOW_MS
from headrace.model.tables.settings import property_of
from headrace.model.tables.status import OPTIMIZING, OptimizingType, ProcessStatus, TableStatus
from headrace.model.task import TaskKind
from headrace.model.text import hint, nearest
from headrace.protocol import task_types
from headrace.protocol.tables import type_name
from headrace.protocol.task_types import PlanOrder
from headrace.store.core import leases, notifications
from headrace.store.core.engine import reading
from headrace.store.core.transactions import in_tx
from headrace.store.tables import catalogs, lake_tables, processes, table_changes, table_tasks
from headrace.store.tables.lake_tables import Blocker, LakeTable
from headrace.store.tasks import tasks
from headrace.store.tasks.tasks import OfTable, Task

COMPARED_MAX = 2000  # names to compare a mistyped one with
NAMED_MAX = 5  # tables of the same name to suggest
BLOCK_MIN_S, BLOCK_MAX_S = 1, 24 * 3600
BLOCKERS_MAX = 20  # of one table at a time
REASON_MAX = 500  # characters
PLANS_READ_MAX = 1000  # of all groups, dry and real
DRY_PLANS_MAX = 10  # waiting or running: they share control slots with real plans
DRY_PLAN_MAX_MS = 600_000  # then it is canceled: nobody waits for it any more


@dataclass(frozen=True, slots=True)
class CommandResult:
    """A table after a command, and whether the command changed anything."""

    table: LakeTable
    changed: bool


@dataclass(frozen=True, slots=True)
class Blocked:
    blocker: Blocker
    # The number of a process whose commit had begun before: it can't be held back any more.
    committing: int | None = None


class TableCommands:
    def __init__(
        self, engine: Engine, clock: Clock, ids: Ids, *, stopping: threading.Event | None = None
    ) -> None:
        self._engine, self._clock, self._ids = engine, clock, ids
        self._stopping = stopping or threading.Event()
        self.catalogs = CatalogCommands(engine, clock, stopping=self._stopping)

    def now_ms(self) -> int:
        """This node's wall clock, for views that show durations relative to it."""
        return self._clock.wall_ms()

    def optimize(self, identifier: str, kind: OptimizingType) -> CommandResult:
        """Have a table optimized now, with at least this type. Idempotent."""

        def work(conn: Connection) -> CommandResult:
            table = _locked(conn, identifier)
            _check_may_optimize(conn, table)
            running = processes.running_of(conn, table.id)
            under_way = running is not None and not running.settling and running.type >= kind
            already_wanted = table.wanted_type is not None and table.wanted_type >= kind
            if under_way or already_wanted:
                return CommandResult(table, changed=False)
            table_changes.want_optimized(conn, table.id, kind)
            notifications.notify(conn)
            return CommandResult(known_table(conn, identifier), changed=True)

        return in_tx(self._engine, work, stop=self._stopping)

    def cancel(self, identifier: str) -> CommandResult:
        """Cancel the running process of a table and withdraw the wish for one. If there is neither,
        nothing changes: the process has ended, or never began."""

        def work(conn: Connection) -> CommandResult:
            # A process is locked before its table, everywhere: the same order avoids deadlock.
            current = processes.running_of(conn, known_table(conn, identifier).id)
            running = processes.lock(conn, current.id) if current is not None else None
            table = _locked(conn, identifier)
            if running is not None and running.status is ProcessStatus.RUNNING:
                _check_can_cancel(table, running.number, settling=running.settling)
            changed = running is not None and processes.want_cancel(conn, running.id)
            if table.wanted_type is not None:
                table_changes.withdraw_wish(conn, table.id)
                changed = True
            notifications.notify(conn)
            return CommandResult(known_table(conn, identifier), changed=changed)

        return in_tx(self._engine, work, stop=self._stopping)

    def pause(self, identifier: str) -> CommandResult:
        """Leave a table alone until `resume`; its running process is closed."""
        return self._want_paused(identifier, paused=True)

    def resume(self, identifier: str) -> CommandResult:
        """Let a table be optimized again; it is evaluated now."""
        return self._want_paused(identifier, paused=False)

    def _want_paused(self, identifier: str, *, paused: bool) -> CommandResult:
        def work(conn: Connection) -> CommandResult:
            table = _locked(conn, identifier)
            if table.wanted_paused == paused:
                return CommandResult(table, changed=False)
            if paused:
                table_changes.pause(conn, table.id)
            else:
                at_once_ms = leases.at_once_ms(conn, now_ms=self._clock.wall_ms())
                table_changes.resume(conn, table.id, due_at_ms=at_once_ms)
            notifications.notify(conn)
            return CommandResult(known_table(conn, identifier), changed=True)

        return in_tx(self._engine, work, stop=self._stopping)

    def plan(self, identifier: str, kind: OptimizingType | None) -> str:
        """Make a dry plan, which changes nothing; `dry_plan` returns the result by the task id.

        A request that is repeated while the first is under way gets the same task.
        """
        task_id = self._ids.new()

        def work(conn: Connection) -> str:
            table = _locked(conn, identifier)
            at_least = None if kind is None else type_name(kind)
            for task in lake_tables.open_plans(conn, table_id=table.id, most=DRY_PLANS_MAX):
                if _is_dry(task) and PlanOrder.of(task.payload).at_least == at_least:
                    return task.id
            now_ms = self._clock.wall_ms()
            _check_room(conn, now_ms=leases.at_once_ms(conn, now_ms=now_ms))
            plan_task(
                conn,
                task_types.PLAN,
                PlanOrder(dry=True, at_least=at_least, retry_times=0),
                task_id=task_id,
                group=table.group,
                of=OfTable(table.id),
                now_ms=leases.lasts_from_ms(conn, now_ms=now_ms),
            )
            notifications.notify(conn)
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
        """Keep a table from being planned and committed for a while. The same name again renews the
        blocker, from now on. A commit that has begun is not held back; the result names its
        process."""
        _check_blocker(name, reason, seconds)

        def work(conn: Connection) -> Blocked:
            table = _locked(conn, identifier)
            # On a node whose clock is ahead the blocker lasts longer; `unblock` can end it.
            now_ms = leases.lasts_from_ms(conn, now_ms=self._clock.wall_ms())
            holding = [each.name for each in lake_tables.blockers_of(conn, table.id, now_ms=now_ms)]
            if name not in holding and len(holding) >= BLOCKERS_MAX:
                raise Refused(
                    f"table {identifier!r} has {BLOCKERS_MAX} blockers, the most that there may "
                    "be; renew one of these, or wait until one expires: " + ", ".join(holding)
                )
            until_ms = now_ms + 1000 * seconds
            lake_tables.block(conn, table.id, name, reason=reason, until_ms=until_ms, now_ms=now_ms)
            held = lake_tables.blockers_of(conn, table.id, now_ms=now_ms)
            mine = next(each for each in held if each.name == name)
            running = processes.running_of(conn, table.id)
            begun = running if running is not None and may_land(table, running) else None
            return Blocked(mine, begun.number if begun is not None else None)

        return in_tx(self._engine, work, stop=self._stopping)

    def unblock(self, identifier: str, name: str) -> None:
        def work(conn: Connection) -> None:
            table = _locked(conn, identifier)
            now_ms = self._clock.wall_ms()
            if not lake_tables.unblock(conn, table.id, name):
                holding = [
                    each.name for each in lake_tables.blockers_of(conn, table.id, now_ms=now_ms)
                ]
                raise NotFound(
                    f"blocker of table {identifier!r}",
                    name,
                    way_out=f"it may have expired; {hint(name, holding, noun='blockers')}",
                )
            notifications.notify(conn)

        in_tx(self._engine, work, stop=self._stopping)


def known_table(conn: Connection, identifier: str) -> LakeTable:
    """The table of this name; NotFound, with the name that was probably meant, if there is none."""
    table = lake_tables.named(conn, identifier)
    if table is None:
        raise NotFound("table", identifier, way_out=_way_out(conn, identifier))
    return table


def _way_out(conn: Connection, identifier: str) -> str:
    """Perhaps the catalog was left out, or a letter mistyped, or the table is not discovered
    yet."""
    last = identifier.rpartition(".")[2].strip("`")
    same = lake_tables.identifiers(conn, most=NAMED_MAX, name=last)
    if same:
        return f"did you mean {' or '.join(map(repr, same))}?"
    near = nearest(identifier, lake_tables.identifiers(conn, most=COMPARED_MAX))
    if near is not None:
        return f"did you mean {near!r}?"
    return (
        "it is written catalog.namespace.table; `headrace table list` shows those that are known, "
        "and `headrace catalog list` when each catalog was last looked into"
    )


def _locked(conn: Connection, identifier: str) -> LakeTable:
    """The table with its row locked against changes."""
    table = lake_tables.lock(conn, known_table(conn, identifier).id)
    return table or known_table(conn, identifier)  # dropped in between: then this raises NotFound


def _is_dry(task: Task) -> bool:
    return task.kind is TaskKind.PLAN and PlanOrder.of(task.payload).dry


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
    old = lake_tables.open_plans(conn, until_ms=now_ms - DRY_PLAN_MAX_MS, most=PLANS_READ_MAX)
    because = f"no worker made this plan within {DRY_PLAN_MAX_MS // 60_000} minutes"
    table_tasks.cancel(conn, [t.id for t in old if _is_dry(t)], because=because, now_ms=now_ms)
    waiting = lake_tables.open_plans(conn, most=PLANS_READ_MAX)
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
