"""Workers that fell silent: unregister, then requeue what they held (T5).

What one was given and never said to hold goes to others sooner: nothing of it is recorded, even if
it was begun (see `worker_lost`).
"""

from __future__ import annotations

import logging
from collections.abc import Sequence

from sqlalchemy import Connection, Engine

from headrace.clock import Clock
from headrace.coordinator.attempts import worker_lost
from headrace.coordinator.roster import Roster
from headrace.model.task import FailureCause, TaskStatus
from headrace.store import claims, tasks, workers
from headrace.store.engine import reading
from headrace.store.tasks import Task

log = logging.getLogger(__name__)

REQUEUE_MAX = 200  # tasks put back in one transaction; the next pass takes the rest


class Workers:
    name = "workers"

    def __init__(self, roster: Roster, clock: Clock) -> None:
        self._roster, self._clock = roster, clock

    def keys(self, engine: Engine) -> Sequence[str]:
        with reading(engine) as conn:
            registered = {worker.id for worker in workers.registered(conn)}
            lost = {task.worker_id or "" for task in tasks.of_unregistered(conn, most=REQUEUE_MAX)}
        silent = {w for w in self._roster.names() | registered if self._roster.expired(w)}
        slow = {w for w in registered - silent if self._roster.slow_to_answer(w)}
        for unknown in silent - registered:  # it spoke without being registered, and went
            self._roster.forget(unknown)
        return [*sorted(silent & registered), *sorted(lost), *sorted(slow)]

    def due(self, conn: Connection, key: str) -> bool:
        if self._roster.expired(key) or not workers.is_registered(conn, key):
            return True
        return bool(self._unanswered(conn, key))

    def _unanswered(self, conn: Connection, key: str) -> Sequence[Task]:
        """Tasks that it was given a while ago, and never said to hold."""
        if not self._roster.slow_to_answer(key):
            return ()
        given = claims.assigned_to(conn, [key])
        return [task for task in given if task.status is TaskStatus.SCHEDULED]

    def reconcile(self, conn: Connection, key: str) -> None:
        if not self.due(conn, key):
            return  # it spoke, or registered anew, since we looked
        silent_s, now_ms = self._roster.silent_for_s(key), self._clock.wall_ms()
        if not self._roster.expired(key) and workers.is_registered(conn, key):
            for task in self._unanswered(conn, key):
                error = f"worker {key} did not say within {silent_s:.0f} s that it holds it"
                worker_lost(conn, task, error, cause=FailureCause.LOST, now_ms=now_ms)
            return
        if workers.unregister(conn, key):
            log.warning("worker lost", extra={"worker": key, "silent_s": round(silent_s)})
            self._roster.forget(key)
        # Its own only, so that a broken row of one worker keeps back nobody else's tasks.
        for task in claims.assigned_to(conn, [key])[:REQUEUE_MAX]:
            error = f"worker {task.worker_id} is gone (no word from it for {silent_s:.0f} s)"
            worker_lost(conn, task, error, cause=FailureCause.LOST, now_ms=now_ms)
