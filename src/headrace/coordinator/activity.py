"""Executions that stand still, as this leader's own clock sees them (D5).

A worker says with each sync how many signs of life each execution has given. What counts here is
when that number last changed, from the first word about it in this term: a new leader can't know
what was said to the one before it, so everybody has one full timeout again (D1). A commit that
hangs while the next epoch moves is seen by the epoch that stays in it.

Time is counted from one word to another, never up to now: as long as no sync can be written,
because the store is away, nobody stands still. That an assignment was said again changes nothing
here; only news of the execution itself does.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass

from headrace.clock import Clock
from headrace.model.epoch import CHECKPOINT_TIMEOUT_MS
from headrace.model.task import OF_TABLES, Claim
from headrace.protocol.messages import Progress
from headrace.store.tasks import Task

STALL_TIMEOUT_S = 600.0  # `execution.stall-timeout`, when nothing else is said
EXECUTE_TIMEOUT_S = 3600.0  # `optimizer.task-execute-timeout`: of a task of a table


@dataclass(frozen=True, slots=True)
class Stuck:
    """An execution that is to be given up, and why. `epoch`: if it is still prepared."""

    claim: Claim
    reason: str
    epoch: int | None = None


@dataclass(slots=True)
class _Watched:
    worker: str
    task: Task
    said: Progress
    heard_at_s: float
    moved_at_s: float  # when `activity` was first heard as it is
    committing_at_s: float  # when `committing` was
    begun_at_s: float  # when this leader first heard of it

    def hear(self, task: Task, said: Progress, now_s: float) -> None:
        if said.activity != self.said.activity:
            self.moved_at_s = now_s
        if said.committing != self.said.committing:
            self.committing_at_s = now_s
        self.task, self.said, self.heard_at_s = task, said, now_s

    def late_commit(self) -> Stuck | None:
        late_s = self.heard_at_s - self.committing_at_s
        timeout_ms = self.task.payload.get("checkpoint_timeout_ms") or CHECKPOINT_TIMEOUT_MS
        if self.said.committing is None or late_s * 1000 <= timeout_ms:
            return None
        epoch, claim = self.said.committing, self.task.claim
        reason = (
            f"epoch {epoch} is prepared, and execution {claim.execution} on worker {self.worker} "
            f"has been committing it to its sinks for {late_s:.1f} s without completing it; "
            f"checkpoint.timeout is {timeout_ms} ms: raise it in the job's env if they need longer"
        )
        return Stuck(claim, reason, epoch)

    def overdue(self, timeout_s: float) -> Stuck | None:
        """Tasks of tables are bounded; a pipeline may run for ever."""
        took_s = self.heard_at_s - self.begun_at_s
        if self.task.kind not in OF_TABLES or took_s <= timeout_s:
            return None
        claim = self.task.claim
        reason = (
            f"execution {claim.execution} on worker {self.worker} has been at its {self.task.kind} "
            f"for {took_s:.0f} s; optimizer.task-execute-timeout is {timeout_s:g} s"
        )
        return Stuck(claim, reason)

    def standstill(self, timeout_s: float) -> Stuck | None:
        still_s = self.heard_at_s - self.moved_at_s
        if self.said.activity == 0 or still_s <= timeout_s:
            return None
        claim = self.task.claim
        reason = (
            f"execution {claim.execution} on worker {self.worker} stands still: no sign of life "
            f"for {still_s:.0f} s in step {self.said.step!r} of epoch {self.said.epoch}; "
            f"execution.stall-timeout is {timeout_s:g} s"
        )
        return Stuck(claim, reason)


class Watch:
    """Of one term. The writer's thread tells it what was said, the passes ask it."""

    def __init__(
        self,
        clock: Clock,
        *,
        stall_timeout_s: float,
        execute_timeout_s: float = EXECUTE_TIMEOUT_S,
    ) -> None:
        self._clock, self._stall_timeout_s = clock, stall_timeout_s
        self._execute_timeout_s = execute_timeout_s
        self._by_worker: dict[str, dict[Claim, _Watched]] = {}
        self._lock = threading.Lock()

    def heard(self, worker: str, given: Sequence[tuple[Task, Progress | None]]) -> None:
        """All that a worker is given now, and what it said of it, once that is committed.

        What it leaves out this time keeps its count; what it is no longer given is forgotten.
        """
        now_s = self._clock.monotonic_s()
        with self._lock:
            before, watching = self._by_worker.pop(worker, {}), dict[Claim, _Watched]()
            for task, said in given:
                watched = before.get(task.claim)
                if watched is not None and said is not None:
                    watched.hear(task, said, now_s)
                elif said is not None:
                    watched = _Watched(worker, task, said, now_s, now_s, now_s, now_s)
                if watched is not None:
                    watching[task.claim] = watched
            if watching:
                self._by_worker[worker] = watching

    def forget(self, worker: str) -> None:
        with self._lock:
            self._by_worker.pop(worker, None)

    def stuck(self) -> Sequence[Stuck]:
        with self._lock:
            watched = [each for held in self._by_worker.values() for each in held.values()]
            return [stuck for each in watched if (stuck := self._judge(each)) is not None]

    def is_stuck(self, claim: Claim) -> Stuck | None:
        with self._lock:
            found = (held.get(claim) for held in self._by_worker.values())
            watched = next((each for each in found if each is not None), None)
            return self._judge(watched) if watched is not None else None

    def _judge(self, watched: _Watched) -> Stuck | None:
        late = watched.late_commit() or watched.overdue(self._execute_timeout_s)
        return late or watched.standstill(self._stall_timeout_s)
