"""What is kept of ended jobs for a while, and then no longer: history and savepoints."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from sqlalchemy import Connection

from headrace.clock import Clock
from headrace.model.cleanup import Retention
from headrace.store import history, savepoints

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class _Kept:
    kept_ms: int
    any_expired: Callable[..., bool]
    expire: Callable[..., int]


class Expiry:
    name = "expiry"

    def __init__(self, clock: Clock, retention: Retention) -> None:
        self._clock = clock
        self._kept: Mapping[str, _Kept] = {
            "history": _Kept(retention.history_expire_ms, history.any_expired, history.expire),
            "savepoints": _Kept(
                retention.savepoint_expire_ms, savepoints.any_expired, savepoints.expire
            ),
        }
        self.keys = tuple(self._kept)

    def due(self, conn: Connection, key: str) -> bool:
        kept = self._kept[key]
        return kept.any_expired(conn, until_ms=self._clock.wall_ms() - kept.kept_ms)

    def reconcile(self, conn: Connection, key: str) -> None:
        kept = self._kept[key]
        gone = kept.expire(conn, until_ms=self._clock.wall_ms() - kept.kept_ms)
        log.info("expired", extra={"what": key, "count": gone})
