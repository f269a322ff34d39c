"""Discovery: the catalog reconciler finds tables that were created or dropped in a catalog.

Every few minutes a DISCOVER task lists a catalog on a worker. Its result stays with the task until
it has been applied, in pages of one transaction each: new tables are added, missing ones dropped. A
catalog that is unavailable, or a namespace that can't be listed, changes nothing about its tables.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from sqlalchemy import Connection, Engine

from headrace.clock import Clock
from headrace.coordinator.planned_tasks import plan_task
from headrace.coordinator.tables.table_state import MOVED, drop_isolated, waits_elsewhere
from headrace.coordinator.tables.table_task import EndedTask, TableTask, catalog_access
from headrace.model.ids import Ids, identifier_of
from headrace.model.tables.schedule import BASE_INTERVAL_MS, DISCOVER_INTERVAL_MS, wait_ms
from headrace.model.task import ENDED, TaskStatus
from headrace.protocol import task_types
from headrace.protocol.tables import (
    TABLES_PER_CATALOG_MAX,
    Chosen,
    Discovered,
    DiscoverPayload,
)
from headrace.protocol.task_types import DiscoverOrder
from headrace.store.core.engine import reading
from headrace.store.tables import catalogs, due_tables, table_changes, table_tasks
from headrace.store.tables.catalogs import Catalog
from headrace.store.tables.table_changes import DiscoveredTable, TableSettings
from headrace.store.tasks import tasks, workers
from headrace.store.tasks.tasks import Task

log = logging.getLogger(__name__)

AWAY_MAX_MS = 30 * 60_000  # the longest back-off: a catalog that is back is found within this
DISCOVER_RETRIES = 1  # a worker may die; an unavailable catalog is tried again later
RETRY_INTERVAL_S = 5
TABLES_PER_PAGE = 500  # added in one transaction
DROPS_PER_PAGE = 50  # in one transaction; each may end a process
PAGES_PER_PASS_MAX = 10  # of one catalog
NAMESPACES_NAMED_MAX = 3  # of those that could not be listed
LEVELS = "\x1f"  # between the levels of a namespace, as Iceberg's REST protocol writes them


def _payload(conn: Connection, task: Task, _now_ms: int) -> DiscoverPayload:
    catalog, reach = catalog_access(conn, DiscoverOrder.of(task.payload).catalog)
    return DiscoverPayload(**reach, table_filter=catalog.table_filter)


def discovered(conn: Connection, ended: EndedTask[Discovered], now_ms: int) -> None:
    """Keep the result of a DISCOVER task with the task; the catalog's next passes apply it."""
    ended.finish(conn, now_ms=now_ms)


DISCOVER = TableTask(task_types.DISCOVER, build=_payload, apply=discovered)


@dataclass(slots=True)
class _Difference:
    """The difference between the listed and the known tables. It lives in memory only: the next
    leader computes it anew."""

    task_id: str
    added: deque[DiscoveredTable] = field(default_factory=deque[DiscoveredTable])
    dropped: deque[str] = field(default_factory=deque[str])
    kept: set[str] = field(default_factory=set[str])  # not droppable: rows are broken
    error: str | None = None

    def __bool__(self) -> bool:
        return bool(self.added or self.dropped)


class CatalogReconciler:
    """Keys are catalog names. A catalog with pages left to apply occurs several times in a pass."""

    name = "catalogs"

    def __init__(self, clock: Clock, ids: Ids, *, discover_ms: int = DISCOVER_INTERVAL_MS) -> None:
        self._clock, self._ids, self._discover_ms = clock, ids, discover_ms
        self._differences: dict[str, _Difference] = {}

    def keys(self, engine: Engine) -> Sequence[str]:
        now_ms = self._clock.wall_ms()
        with reading(engine) as conn:
            known = catalogs.all_of_them(conn)
        self._differences = {
            each.name: self._differences[each.name]
            for each in known
            if each.name in self._differences
        }
        keys: list[str] = []
        for each in known:
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
        order = DiscoverOrder(
            catalog=catalog.name,
            retry_times=DISCOVER_RETRIES,
            retry_interval_s=RETRY_INTERVAL_S,
        )
        plan_task(
            conn, task_types.DISCOVER, order, task_id=task_id, group=catalog.group, now_ms=now_ms
        )
        catalogs.begin_discovery(conn, catalog.name, task_id=task_id)

    def _look_at_task(
        self, conn: Connection, catalog: Catalog, task_id: str, *, now_ms: int
    ) -> None:
        task = tasks.get(conn, task_id)
        if task is None:  # its outcome is unknown: discover again
            catalogs.drop_discovery(conn, catalog.name, due_at_ms=now_ms)
        elif task.status is TaskStatus.SUCCESS:
            self._apply(conn, catalog, task, now_ms=now_ms)
        elif task.status in ENDED:
            _failed(conn, catalog, task, now_ms=now_ms)
        elif waits_elsewhere(task, catalog.group):
            table_tasks.cancel(conn, [task.id], because=MOVED, now_ms=now_ms)
            catalogs.drop_discovery(conn, catalog.name, due_at_ms=now_ms)

    def _compare(self, conn: Connection, catalog: Catalog, task: Task) -> None:
        """Compute what is left to apply, within a read transaction: comparing 100,000 tables takes
        a second, during which nobody could write. It is computed again when all pages seem to be
        applied, since the transaction of one may have been lost."""
        left = self._differences.get(catalog.name)
        known = left is not None and left.task_id == task.id
        if left is None or not known or not left:
            kept = left.kept if left is not None and known else frozenset[str]()
            self._differences[catalog.name] = self._difference(conn, catalog, task, kept)

    def _apply(self, conn: Connection, catalog: Catalog, task: Task, *, now_ms: int) -> None:
        """Apply one page. The result counts as applied only when the rows show no difference any
        more."""
        left = self._differences.get(catalog.name)
        if left is None or left.task_id != task.id:
            return  # the next call of `due` compares
        if not left:
            del self._differences[catalog.name]
            _applied(conn, catalog, left, discover_ms=self._discover_ms, now_ms=now_ms)
        elif left.added:
            count = min(TABLES_PER_PAGE, len(left.added))
            page = [left.added.popleft() for _ in range(count)]
            table_changes.add_discovered(conn, page, now_ms=now_ms)
        else:
            because = f"the table is no longer in catalog {catalog.name!r}, or its filter skips it"
            for _ in range(min(DROPS_PER_PAGE, len(left.dropped))):
                table_id = left.dropped.popleft()
                if not drop_isolated(conn, table_id, because=because, now_ms=now_ms):
                    left.kept.add(table_id)

    def _difference(
        self, conn: Connection, catalog: Catalog, task: Task, kept: Collection[str]
    ) -> _Difference:
        discovery = Discovered.model_validate(table_tasks.result(conn, task.id) or {})
        known = due_tables.known(conn, catalog.name)
        listed = {
            identifier_of(catalog.name, levels, name): (levels, name)
            for levels, name in _names(discovery)
        }
        failed = [_levels(namespace) for namespace in discovery.failed]
        return _Difference(
            task.id,
            added=deque(
                _new_table(self._ids.new(), catalog.name, levels, name)
                for identifier, (levels, name) in listed.items()
                if identifier not in known
            ),
            dropped=deque(
                table_id
                for identifier, (table_id, levels) in known.items()
                if identifier not in listed
                and not _is_below(levels, failed)
                and table_id not in kept
            ),
            kept=set(kept),
            error=_unlisted_error(discovery.failed),
        )


def _has_worker(conn: Connection, catalog: Catalog) -> bool:
    """No task is written for a group that has no worker to run it."""
    return catalog.group in workers.slots_by_group(conn)


def _names(discovery: Discovered) -> Sequence[tuple[tuple[str, ...], str]]:
    names = [(_levels(joined), name) for joined, of in discovery.tables.items() for name in of]
    return names[:TABLES_PER_CATALOG_MAX]


def _levels(joined: str) -> tuple[str, ...]:
    return tuple(joined.split(LEVELS)) if joined else ()


def _is_below(levels: tuple[str, ...], failed: Sequence[tuple[str, ...]]) -> bool:
    """Whether the namespace is one that could not be listed, or lies beneath one."""
    return any(levels[: len(each)] == each for each in failed)


def _new_table(table_id: str, catalog: str, levels: tuple[str, ...], name: str) -> DiscoveredTable:
    """A table that was not known, with default settings until it is evaluated."""
    chosen = Chosen()
    return DiscoveredTable(
        id=table_id,
        catalog=catalog,
        namespace=levels,
        name=name,
        identifier=identifier_of(catalog, levels, name),
        settings=TableSettings(
            group=chosen.group,
            enabled=chosen.enabled,
            quota=chosen.quota,
            min_plan_interval_ms=chosen.min_plan_interval_ms,
        ),
        interval_ms=BASE_INTERVAL_MS,
    )


def _unlisted_error(failed: Mapping[str, str]) -> str | None:
    """What to show about namespaces that could not be listed; None when all were."""
    if not failed:
        return None
    some = sorted(failed.items())[:NAMESPACES_NAMED_MAX]
    named = "; ".join(f"{'.'.join(_levels(name)) or '(root)'}: {why}" for name, why in some)
    count = "1 namespace" if len(failed) == 1 else f"{len(failed)} namespaces"
    return f"{count} could not be listed, and nothing in it counts as dropped: {named}"


def _applied(
    conn: Connection, catalog: Catalog, left: _Difference, *, discover_ms: int, now_ms: int
) -> None:
    """Delete the task together with its result, which may be large."""
    tasks.delete(conn, left.task_id)
    due_at_ms = now_ms + discover_ms
    catalogs.note_discovered(
        conn, catalog.name, error=left.error, due_at_ms=due_at_ms, now_ms=now_ms
    )


def _failed(conn: Connection, catalog: Catalog, task: Task, *, now_ms: int) -> None:
    """Back off; what is known of the catalog's tables stays as it is."""
    failures = catalog.failures + 1
    error = task.error or f"its discovery ended {task.status}, and nobody said why"
    pause_ms = wait_ms(failures, most_ms=AWAY_MAX_MS)
    facts = {"catalog": catalog.name, "failures": failures, "reason": error}
    log.warning("catalog not discovered", extra=facts)
    catalogs.note_not_discovered(
        conn, catalog.name, failures=failures, error=error, due_at_ms=now_ms + pause_ms
    )


def _remove_some(conn: Connection, catalog: Catalog, *, now_ms: int) -> None:
    """Drop the catalog's tables page by page, then the catalog itself with its secrets."""
    because = f"catalog {catalog.name!r} was removed"
    if catalog.task_id is not None:
        table_tasks.cancel(conn, [catalog.task_id], because=because, now_ms=now_ms)
        catalogs.drop_discovery(conn, catalog.name, due_at_ms=now_ms)
    page = due_tables.some_of(conn, catalog.name, most=DROPS_PER_PAGE)
    kept = [one for one in page if not drop_isolated(conn, one, because=because, now_ms=now_ms)]
    if kept:
        error = f"it is to be removed, and {len(kept)} of its tables can't be: see the leader's log"
        catalogs.note_error(conn, catalog.name, error)
    elif len(page) < DROPS_PER_PAGE:
        catalogs.drop(conn, catalog.name)
        log.info("catalog removed", extra={"catalog": catalog.name})
