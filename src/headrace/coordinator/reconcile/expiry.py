"""What is kept for a while, and then no longer: history, logs, savepoints, work for tables."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from sqlalchemy import Connection

from headrace.clock import Clock
from headrace.model.cleanup import JOB_LOG_LINES_MAX, Retention
from headrace.model.tables.schedule import OCCUPATION_WINDOW_MS
from headrace.store import (
    blockers,
    history,
    job_logs,
    leases,
    processes,
    savepoints,
    table_tasks,
)
from headrace.store.job_logs import Counted

log = logging.getLogger(__name__)

TASKS_INTERVAL_S = 60.0  # after a look for ended tasks that found none: it reads all of them
COUNT_INTERVAL_S = 60.0  # between two counts of all log lines
NOTHING_IS_OLD_MS = 0  # before all times
COUNTED_AT_ONCE = 50_000  # log lines in one statement, which must end long before the ttl


@dataclass(frozen=True, slots=True)
class _Kept:
    kept_ms: int
    any_expired: Callable[..., bool]
    expire: Callable[..., int]
    interval_s: float = 0.0  # after a look that found nothing


class Expiry:
    name = "expiry"

    def __init__(
        self, clock: Clock, retention: Retention, *, log_lines_max: int = JOB_LOG_LINES_MAX
    ) -> None:
        self._clock = clock
        self._lines = _LineCount(clock, most=log_lines_max)
        self._kept: Mapping[str, _Kept] = {
            "history": _Kept(retention.history_expire_ms, history.any_expired, history.expire),
            "log lines": _Kept(
                retention.job_log_expire_ms, self._any_lines_expired, self._expire_lines
            ),
            "savepoints": _Kept(
                retention.savepoint_expire_ms, savepoints.any_expired, savepoints.expire
            ),
            # As long as the time of a task counts against the quota of its table.
            "tasks of tables": _Kept(
                OCCUPATION_WINDOW_MS,
                table_tasks.any_expired,
                table_tasks.expire,
                TASKS_INTERVAL_S,
            ),
            "processes": _Kept(
                retention.process_expire_ms, processes.any_expired, processes.expire
            ),
            "blockers": _Kept(0, blockers.any_expired, blockers.expire),
        }
        self.keys = tuple(self._kept)
        self._look_at_s = dict.fromkeys(self.keys, 0.0)

    def due(self, conn: Connection, key: str) -> bool:
        kept, now_s = self._kept[key], self._clock.monotonic_s()
        if now_s < self._look_at_s[key]:
            return False
        found = kept.any_expired(conn, until_ms=self._until_ms(conn, kept))
        if not found:
            self._look_at_s[key] = now_s + kept.interval_s
        return found

    def reconcile(self, conn: Connection, key: str) -> None:
        kept = self._kept[key]
        gone = kept.expire(conn, until_ms=self._until_ms(conn, kept))
        if gone:
            log.info("expired", extra={"what": key, "count": gone})

    def _until_ms(self, conn: Connection, kept: _Kept) -> int:
        """Before when a thing must have ended to be old enough."""
        until_ms = self._clock.wall_ms() - kept.kept_ms
        # What ended before the clock was set ahead only looks that old. The rest is younger.
        return NOTHING_IS_OLD_MS if until_ms < leases.set_ahead_at_ms(conn) else until_ms

    def _any_lines_expired(self, conn: Connection, *, until_ms: int) -> bool:
        too_many = self._lines.count_on(conn)
        ahead = job_logs.any_ahead(conn, now_ms=self._clock.wall_ms())
        return too_many > 0 or ahead or job_logs.any_expired(conn, until_ms=until_ms)

    def _expire_lines(self, conn: Connection, *, until_ms: int) -> int:
        job_logs.set_right(conn, now_ms=self._clock.wall_ms())
        gone = job_logs.expire(conn, until_ms=until_ms, too_many=self._lines.too_many)
        self._lines.went(gone)
        return gone


class _LineCount:
    """How many log lines there are beyond those that are kept of all jobs.

    Some are counted in each pass, and it begins anew now and then.
    """

    def __init__(self, clock: Clock, *, most: int) -> None:
        self._clock, self._most = clock, most
        self.too_many = 0  # as far as is known
        self._counted = Counted()
        self._next_s = clock.monotonic_s()

    def count_on(self, conn: Connection) -> int:
        """One step of the count, if it is due; how many lines are too many."""
        now_s = self._clock.monotonic_s()
        if now_s < self._next_s:
            return self.too_many
        self._counted = job_logs.count(conn, self._counted, most=COUNTED_AT_ONCE)
        if self._counted.up_to is None:
            self.too_many = max(0, self._counted.lines - self._most)
            self._counted, self._next_s = Counted(), now_s + COUNT_INTERVAL_S
        return self.too_many

    def went(self, lines: int) -> None:
        """So many are gone, the oldest. While it counts, they may not have been counted yet: better
        too few go than too many, and the next count finds the rest."""
        self.too_many = max(0, self.too_many - lines)
        counted = self._counted.lines
        self._counted = replace(self._counted, lines=max(0, counted - lines))
