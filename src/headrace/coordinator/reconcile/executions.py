"""Executions that stand still: failed, and tried again while they may be (D5).

Their worker is told to stop them with its next sync, because a claim that is no longer current
always is; what they still commit is refused by the target.
"""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import Connection

from headrace.clock import Clock
from headrace.coordinator.activity import Stuck, Watch
from headrace.coordinator.attempts import attempt_failed, place_of
from headrace.model.epoch import EpochStatus
from headrace.model.task import ASSIGNED, Claim
from headrace.store import epochs, tasks
from headrace.store.tasks import Task


class Executions:
    name = "executions"

    def __init__(self, watch: Watch, clock: Clock) -> None:
        self._watch, self._clock = watch, clock

    def keys(self) -> Sequence[str]:
        return [stuck.claim.execution for stuck in self._watch.stuck()]

    def due(self, conn: Connection, key: str) -> bool:
        stuck = self._watch.is_stuck(_claim(key))
        task = tasks.get(conn, stuck.claim.task) if stuck else None
        current = task is not None and task.status in ASSIGNED
        return (
            stuck is not None
            and task is not None
            and current
            and task.claim == stuck.claim
            and _is_true(conn, task, stuck)
        )

    def reconcile(self, conn: Connection, key: str) -> None:
        stuck = self._watch.is_stuck(_claim(key))
        task = tasks.current(conn, stuck.claim) if stuck else None
        if stuck is not None and task is not None and _is_true(conn, task, stuck):
            now_ms = self._clock.wall_ms()
            attempt_failed(conn, task, stuck.reason, retry=True, now_ms=now_ms)


def _claim(key: str) -> Claim:
    task, _, attempt = key.rpartition(".")
    return Claim(task, int(attempt))


def _is_true(conn: Connection, task: Task, stuck: Stuck) -> bool:
    """An epoch whose commit took long may be completed by now: its report came with the word."""
    if stuck.epoch is None:
        return True
    epoch = epochs.get(conn, place_of(conn, task).at(stuck.epoch))
    return epoch is not None and epoch.status is EpochStatus.PREPARED
