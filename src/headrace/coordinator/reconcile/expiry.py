"""What is kept for a while, and then no longer: history, savepoints, ended work for tables."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from sqlalchemy import Connection

from headrace.clock import Clock
from headrace.model.cleanup import Retention
from headrace.model.tables.schedule import OCCUPATION_WINDOW_MS
from headrace.store import blockers, history, processes, savepoints, table_tasks

log = logging.getLogger(__name__)

TASKS_INTERVAL_S = 60.0  # after a look for ended tasks that found none: it reads all of them


@dataclass(frozen=True, slots=True)
class _Kept:
    kept_ms: int
    any_expired: Callable[..., bool]
    expire: Callable[..., int]
    interval_s: float = 0.0  # after a look that found nothing


class Expiry:
    name = "expiry"

    def __init__(self, clock: Clock, retention: Retention) -> None:
        self._clock = clock
        self._kept: Mapping[str, _Kept] = {
            "history": _Kept(retention.history_expire_ms, history.any_expired, history.expire),
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
        found = kept.any_expired(conn, until_ms=self._clock.wall_ms() - kept.kept_ms)
        if not found:
            self._look_at_s[key] = now_s + kept.interval_s
        return found

    def reconcile(self, conn: Connection, key: str) -> None:
        kept = self._kept[key]
        gone = kept.expire(conn, until_ms=self._clock.wall_ms() - kept.kept_ms)
        log.info("expired", extra={"what": key, "count": gone})
