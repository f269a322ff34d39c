"""Catalogs: looked into every few minutes, so that tables come and go by themselves.

The look itself is a worker's task. What it found stays with the task until it is applied, in pages
of one transaction each: what is new is added, what is gone is dropped. A catalog that is away, or a
namespace that can't be listed, changes nothing of the tables in it.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import Connection, Engine

from headrace.clock import Clock
from headrace.coordinator.tables.dropping import drop_apart
from headrace.coordinator.tables.moving import MOVED, waits_elsewhere
from headrace.model.ids import Ids
from headrace.model.tables.backoff import wait_ms
from headrace.model.tables.names import identifier_of
from headrace.model.tables.refresh import BASE_INTERVAL_MS, DISCOVER_INTERVAL_MS
from headrace.model.tables.status import TableStatus
from headrace.model.task import ENDED, Lane, TaskKind, TaskStatus
from headrace.protocol.tables import TABLES_PER_CATALOG_MAX, Chosen, Discovered
from headrace.store import catalogs, lake, lake_turns, table_tasks, tasks, workers
from headrace.store.catalogs import Catalog
from headrace.store.engine import reading
from headrace.store.tasks import End, Task

log = logging.getLogger(__name__)

AWAY_MAX_MS = 30 * 60_000  # a catalog that is back is looked into within this
DISCOVER_RETRIES = 1  # a worker may die; a catalog that is away is asked again later
RETRY_INTERVAL_S = 5
TABLES_PER_PAGE = 500  # added in one transaction
DROPS_PER_PAGE = 50  # each may end a process
PAGES_PER_PASS_MAX = 10  # of one catalog
NAMESPACES_TOLD_MAX = 3  # by name, of those that could not be listed
LEVELS = "\x1f"  # between the levels of a namespace, as Iceberg's REST protocol writes them

Found = Mapping[str, Any]  # a table as a row


def discovered(conn: Connection, task: Task, found: Discovered, *, now_ms: int) -> None:
    """Keep what a look found; the catalog's next passes apply it."""
    told = found.model_dump(mode="json")
    tasks.finish(conn, [End(task.claim, TaskStatus.SUCCESS, result=told)], now_ms=now_ms)


@dataclass(slots=True)
class _Difference:
    """Between what was found and what is known. Lost with the leader, and made anew by the next."""

    task_id: str
    added: deque[Found] = field(default_factory=deque[Found])
    dropped: deque[str] = field(default_factory=deque[str])
    kept: set[str] = field(default_factory=set[str])  # that can't be dropped, for what is broken
    error: str | None = None

    def __bool__(self) -> bool:
        return bool(self.added or self.dropped)


class Catalogs:
    """Keys are names of catalogs; one that has pages to apply comes several times in a pass."""

    name = "catalogs"

    def __init__(self, clock: Clock, ids: Ids, *, discover_ms: int = DISCOVER_INTERVAL_MS) -> None:
        self._clock, self._ids, self._discover_ms = clock, ids, discover_ms
        self._differences: dict[str, _Difference] = {}

    def keys(self, engine: Engine) -> Sequence[str]:
        now_ms = self._clock.wall_ms()
        with reading(engine) as conn:
            found = catalogs.all_of_them(conn)
        self._differences = {
            each.name: self._differences[each.name]
            for each in found
            if each.name in self._differences
        }
        keys: list[str] = []
        for each in found:
            if each.wanted_removed or each.name in self._differences:
                keys += [each.name] * PAGES_PER_PASS_MAX
            elif each.task_id is not None or each.due_at_ms <= now_ms:
                keys.append(each.name)
        return keys

    def due(self, conn: Connection, key: str) -> bool:
        catalog = catalogs.get(conn, key)
        if catalog is None:
            return False
        if catalog.wanted_removed:
            return True
        if catalog.task_id is None:
            return catalog.due_at_ms <= self._clock.wall_ms() and _has_worker(conn, catalog)
        task = tasks.get(conn, catalog.task_id)
        if task is not None and task.status is TaskStatus.SUCCESS:
            self._compare(conn, catalog, task)
        return task is None or task.status in ENDED or waits_elsewhere(task, catalog.group)

    def reconcile(self, conn: Connection, key: str) -> None:
        catalog, now_ms = catalogs.lock(conn, key), self._clock.wall_ms()
        if catalog is None:
            return
        if catalog.wanted_removed:
            _remove_some(conn, catalog, now_ms=now_ms)
        elif catalog.task_id is not None:
            self._look_at_task(conn, catalog, catalog.task_id, now_ms=now_ms)
        elif catalog.due_at_ms <= now_ms:
            self._discover(conn, catalog, now_ms=now_ms)

    def _discover(self, conn: Connection, catalog: Catalog, *, now_ms: int) -> None:
        task_id = self._ids.new()
        tasks.plan(
            conn,
            task_id=task_id,
            kind=TaskKind.DISCOVER,
            lane=Lane.CONTROL,
            group=catalog.group,
            payload={
                "catalog": catalog.name,
                "retry_times": DISCOVER_RETRIES,
                "retry_interval_s": RETRY_INTERVAL_S,
            },
            now_ms=now_ms,
        )
        catalogs.change(conn, catalog.name, task_id=task_id)

    def _look_at_task(
        self, conn: Connection, catalog: Catalog, task_id: str, *, now_ms: int
    ) -> None:
        task = tasks.get(conn, task_id)
        if task is None:  # nobody knows what became of it: look again
            catalogs.change(conn, catalog.name, task_id=None, due_at_ms=now_ms)
        elif task.status is TaskStatus.SUCCESS:
            self._apply(conn, catalog, task, now_ms=now_ms)
        elif task.status in ENDED:
            _failed(conn, catalog, task, now_ms=now_ms)
        elif waits_elsewhere(task, catalog.group):
            table_tasks.cancel(conn, [task.id], because=MOVED, now_ms=now_ms)
            catalogs.change(conn, catalog.name, task_id=None, due_at_ms=now_ms)

    def _compare(self, conn: Connection, catalog: Catalog, task: Task) -> None:
        """What is left to apply. By a read: comparing 100,000 tables takes a second, for which
        nobody could write. Anew when all pages are said to be applied: one may have been lost."""
        left = self._differences.get(catalog.name)
        known = left is not None and left.task_id == task.id
        if left is None or not known or not left:
            kept = left.kept if left is not None and known else frozenset[str]()
            self._differences[catalog.name] = self._difference(conn, catalog, task, kept)

    def _apply(self, conn: Connection, catalog: Catalog, task: Task, *, now_ms: int) -> None:
        """One page; all is applied when the rows themselves show no difference any more."""
        left = self._differences.get(catalog.name)
        if left is None or left.task_id != task.id:
            return  # the next look compares
        if not left:
            del self._differences[catalog.name]
            _applied(conn, catalog, left, discover_ms=self._discover_ms, now_ms=now_ms)
        elif left.added:
            count = min(TABLES_PER_PAGE, len(left.added))
            lake.add_found(conn, [left.added.popleft() for _ in range(count)])
        else:
            because = f"the table is no longer in catalog {catalog.name!r}, or its filter skips it"
            for _ in range(min(DROPS_PER_PAGE, len(left.dropped))):
                table_id = left.dropped.popleft()
                if not drop_apart(conn, table_id, because=because, now_ms=now_ms):
                    left.kept.add(table_id)

    def _difference(
        self, conn: Connection, catalog: Catalog, task: Task, kept: Collection[str]
    ) -> _Difference:
        now_ms = self._clock.wall_ms()
        found = Discovered.model_validate(table_tasks.result(conn, task.id) or {})
        known = lake_turns.known(conn, catalog.name)
        there = {
            identifier_of(catalog.name, levels, name): (levels, name)
            for levels, name in _names(found)
        }
        failed = [_levels(namespace) for namespace in found.failed]
        return _Difference(
            task.id,
            added=deque(
                _row(self._ids.new(), catalog.name, levels, name, now_ms=now_ms)
                for identifier, (levels, name) in there.items()
                if identifier not in known
            ),
            dropped=deque(
                table_id
                for identifier, (table_id, levels) in known.items()
                if identifier not in there
                and not _is_below(levels, failed)
                and table_id not in kept
            ),
            kept=set(kept),
            error=_told(found.failed),
        )


def _has_worker(conn: Connection, catalog: Catalog) -> bool:
    """Nothing is written for a group in which nobody could do it."""
    return catalog.group in workers.slots_by_group(conn)


def _names(found: Discovered) -> Sequence[tuple[tuple[str, ...], str]]:
    names = [(_levels(joined), name) for joined, of in found.tables.items() for name in of]
    return names[:TABLES_PER_CATALOG_MAX]


def _levels(joined: str) -> tuple[str, ...]:
    return tuple(joined.split(LEVELS)) if joined else ()


def _is_below(levels: tuple[str, ...], failed: Sequence[tuple[str, ...]]) -> bool:
    """Whether it lies in a namespace that could not be listed, or beneath one."""
    return any(levels[: len(each)] == each for each in failed)


def _row(table_id: str, catalog: str, levels: tuple[str, ...], name: str, *, now_ms: int) -> Found:
    """A table nobody has looked at yet: to be evaluated at once, with settings as by default."""
    chosen = Chosen()
    return {
        "id": table_id,
        "catalog": catalog,
        "namespace": list(levels),
        "name": name,
        "identifier": identifier_of(catalog, levels, name),
        "created_at_ms": now_ms,
        "status": TableStatus.IDLE,
        "status_since_ms": now_ms,
        "due_at_ms": now_ms,
        "interval_ms": BASE_INTERVAL_MS,
        "group_name": chosen.group,
        "quota": chosen.quota,
        "min_plan_interval_ms": chosen.min_plan_interval_ms,
    }


def _told(failed: Mapping[str, str]) -> str | None:
    if not failed:
        return None
    some = sorted(failed.items())[:NAMESPACES_TOLD_MAX]
    named = "; ".join(f"{'.'.join(_levels(name)) or '(root)'}: {why}" for name, why in some)
    count = "1 namespace" if len(failed) == 1 else f"{len(failed)} namespaces"
    return f"{count} could not be listed, and nothing in it counts as dropped: {named}"


def _applied(
    conn: Connection, catalog: Catalog, left: _Difference, *, discover_ms: int, now_ms: int
) -> None:
    """The task goes with its result, which may be large."""
    tasks.delete(conn, left.task_id)
    catalogs.change(
        conn,
        catalog.name,
        task_id=None,
        due_at_ms=now_ms + discover_ms,
        discovered_at_ms=now_ms,
        failures=0,
        error=left.error,
    )


def _failed(conn: Connection, catalog: Catalog, task: Task, *, now_ms: int) -> None:
    """Later and later; what is known of its tables stays as it is."""
    failures = catalog.failures + 1
    error = task.error or f"its discovery ended {task.status}, and nobody said why"
    pause_ms = wait_ms(failures, most_ms=AWAY_MAX_MS)
    facts = {"catalog": catalog.name, "failures": failures, "reason": error}
    log.warning("catalog not discovered", extra=facts)
    catalogs.change(
        conn,
        catalog.name,
        task_id=None,
        due_at_ms=now_ms + pause_ms,
        failures=failures,
        error=error,
    )


def _remove_some(conn: Connection, catalog: Catalog, *, now_ms: int) -> None:
    """Its tables page by page, then itself with its secrets."""
    because = f"catalog {catalog.name!r} was removed"
    if catalog.task_id is not None:
        table_tasks.cancel(conn, [catalog.task_id], because=because, now_ms=now_ms)
        catalogs.change(conn, catalog.name, task_id=None)
    page = lake_turns.some_of(conn, catalog.name, most=DROPS_PER_PAGE)
    kept = [one for one in page if not drop_apart(conn, one, because=because, now_ms=now_ms)]
    if kept:
        told = f"it is to be removed, and {len(kept)} of its tables can't be: see the leader's log"
        catalogs.change(conn, catalog.name, error=told)
    elif len(page) < DROPS_PER_PAGE:
        catalogs.drop(conn, catalog.name)
        log.info("catalog removed", extra={"catalog": catalog.name})
