"""Liveness of workers and executions: registration, heartbeat timeouts, and executions that stall.

Registration: a worker belongs to the current launch of its resource, or to no resource. A launch
that is not the current one was replaced while it booted: its worker is refused, and ends itself. A
worker that came up again within one launch, as a pod does, waits until its predecessor is known to
be gone. The resource's row is locked meanwhile, so that it can't be given up at the same time (R4).

`WorkerLiveness` is what a leader knows of each worker in its own term: when it last synced, and
what it was answered. It lives in memory only, on this process's monotonic clock: no two clocks are
ever compared. A worker that has not synced with this leader yet counts as seen at the take-over, so
a new leader gives everybody one full timeout before any of them may expire (D1). `WorkerExpiry`
unregisters workers that fell silent, then requeues what they held (T5). A task that was assigned
and never acknowledged goes to others sooner: nothing of it is recorded, even if it was begun (see
`attempts.worker_lost`).

`ExecutionMonitor` finds executions that stand still, by this leader's own clock (D5). A worker
reports with each sync how many signs of life each execution has given. What counts is when that
number last changed, from the first report in this term on: a new leader can't know what was
reported to the former one, so every execution has one full timeout again (D1). A commit that hangs
while the next epoch moves on is found by the epoch that stays in `committing`. Time is counted from
one report to another, never up to now: while no sync can be written, because the store is
unavailable, nothing counts as stalled. That an assignment was sent again changes nothing; only a
report of the execution itself does. `StallReconciler` fails such an execution, and it is tried
again while it may be. Its worker learns with its next sync that it must stop, as for every claim
that is no longer current; whatever it still commits is refused by the target.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from sqlalchemy import Connection, Engine

from headrace.clock import Clock
from headrace.coordinator.context import ACK_TIMEOUT_S, EXECUTE_TIMEOUT_S, STALL_TIMEOUT_S
from headrace.coordinator.jobs.attempts import attempt_failed, place_of, worker_lost
from headrace.errors import LaunchOver, LaunchTaken
from headrace.model.ids import check_name
from headrace.model.jobs.epoch import EpochStatus
from headrace.model.task import ASSIGNED, OF_TABLES, Claim, FailureCause, PipelineOrder, TaskStatus
from headrace.protocol.messages import Progress
from headrace.store.core.engine import reading
from headrace.store.groups import groups, resources
from headrace.store.jobs import epochs
from headrace.store.tasks import claims, tasks, workers
from headrace.store.tasks.claims import NONE_LEFT_OUT, LeftOut
from headrace.store.tasks.tasks import Task
from headrace.store.tasks.workers import Worker

log = logging.getLogger(__name__)

REQUEUE_MAX = 200  # tasks requeued in one transaction; the next pass takes the rest
UNFIT_TASKS_MAX = 1000  # of a worker: tasks it could not run that are remembered, the latest ones


def register(conn: Connection, worker: Worker, plugins: str | None = None, *, now_ms: int) -> None:
    """Add a worker, and its group if that does not exist yet. `plugins`: those that it has, as they
    are stored; None: it did not say."""
    check_name("group", worker.group)
    groups.add(conn, worker.group, now_ms=now_ms)
    if worker.resource_id is not None:
        _check_launch(conn, worker, worker.resource_id)
    workers.register(conn, worker, plugins)


def _check_launch(conn: Connection, worker: Worker, resource_id: str) -> None:
    """Refuse a worker that is not of the current launch; note that the resource has a worker."""
    resource = resources.lock(conn, resource_id)
    subject = f"worker {worker.id} is launch {worker.launch} of resource {resource_id!r}"
    if resource is None or resource.wanted_released:
        raise LaunchOver(f"{subject}, which is released; nothing is to be done for it here")
    if worker.group != resource.group:
        raise LaunchOver(f"{subject}, which is of group {resource.group!r}, not {worker.group!r}")
    if worker.launch != resource.launch:
        raise LaunchOver(f"{subject}, and launch {resource.launch} is the current one; it ends")
    other = workers.of_resource(conn, resource_id)
    if other is not None and other.id != worker.id and other.launch == worker.launch:
        raise LaunchTaken(f"{subject}, and worker {other.id} is registered for that")
    resources.registered(conn, resource)


@dataclass(slots=True)
class _Presence:
    """What is known of one worker in this term."""

    seen_at_s: float
    sync: int = 0  # the highest number of a sync that it sent
    number: int = 0  # of the last answer that was made for it
    progress: Mapping[Claim, Progress] = field(default_factory=dict[Claim, Progress])
    # What it gave back, or could not be told, and must not be assigned again and again.
    unfit: LeftOut = NONE_LEFT_OUT


class WorkerLiveness:
    """When each worker last synced, in memory. Lives for one leader term; thread-safe."""

    def __init__(
        self,
        clock: Clock,
        *,
        timeout_s: float,
        stall_timeout_s: float = STALL_TIMEOUT_S,
        ack_timeout_s: float = ACK_TIMEOUT_S,
        execute_timeout_s: float = EXECUTE_TIMEOUT_S,
    ) -> None:
        self._clock = clock
        self.monitor = ExecutionMonitor(
            clock, stall_timeout_s=stall_timeout_s, execute_timeout_s=execute_timeout_s
        )
        self._timeout_s, self._ack_timeout_s = timeout_s, ack_timeout_s
        self._took_over_at_s = clock.monotonic_s()
        self._present: dict[str, _Presence] = {}
        self._lock = threading.Lock()

    def _presence_of(self, worker: str) -> _Presence:
        return self._present.setdefault(worker, _Presence(self._took_over_at_s))

    def note_sync(self, worker: str, sync: int) -> bool:
        """Note a sync. False: it is older than one already noted, and says nothing new."""
        with self._lock:
            presence = self._presence_of(worker)
            presence.seen_at_s = self._clock.monotonic_s()
            if sync < presence.sync:
                return False
            presence.sync = sync
            return True

    def next_number(self, worker: str) -> int:
        with self._lock:
            presence = self._presence_of(worker)
            presence.number += 1
            return presence.number

    def stored_progress(self, worker: str) -> Mapping[Claim, Progress]:
        """The progress of its tasks that is in the store already, so that it is written once."""
        with self._lock:
            presence = self._present.get(worker)
        return presence.progress if presence else {}

    def note_stored_progress(self, worker: str, progress: Mapping[Claim, Progress]) -> None:
        with self._lock:
            if (presence := self._present.get(worker)) is not None:
                presence.progress = progress

    def unfit(self, worker: str) -> LeftOut:
        """Tasks that this worker turned out not to be able to run."""
        with self._lock:
            presence = self._present.get(worker)
        return presence.unfit if presence else NONE_LEFT_OUT

    def note_unfit(self, worker: str, task: Task, *, whole_kind: bool) -> None:
        """Note that the worker can't run this task, or none of its kind."""
        with self._lock:
            if (presence := self._present.get(worker)) is None:
                return
            kinds, ids = presence.unfit.kinds, presence.unfit.tasks
            if whole_kind:
                kinds |= {task.kind}
            else:  # ids grow with time, so that the oldest go first
                ids = frozenset(sorted(ids | {task.id})[-UNFIT_TASKS_MAX:])
            presence.unfit = LeftOut(kinds, ids)

    def names(self) -> set[str]:
        with self._lock:
            return set(self._present)

    def forget(self, worker: str) -> None:
        with self._lock:
            self._present.pop(worker, None)
        self.monitor.forget(worker)

    def silent_for_s(self, worker: str) -> float:
        with self._lock:
            presence = self._present.get(worker)
        seen_at_s = presence.seen_at_s if presence else self._took_over_at_s
        return self._clock.monotonic_s() - seen_at_s

    def expired(self, worker: str) -> bool:
        return self.silent_for_s(worker) > self._timeout_s

    def slow_to_answer(self, worker: str) -> bool:
        """Whether tasks that it has not acknowledged yet may go to another worker."""
        return self.silent_for_s(worker) > self._ack_timeout_s


class WorkerExpiry:
    """Reconciles silent workers: unregisters them and requeues their tasks."""

    name = "workers"

    def __init__(self, liveness: WorkerLiveness, clock: Clock) -> None:
        self._liveness, self._clock = liveness, clock

    def keys(self, engine: Engine) -> Sequence[str]:
        with reading(engine) as conn:
            registered = {worker.id for worker in workers.registered(conn)}
            lost = tasks.unregistered_holders(conn)
        silent = {w for w in self._liveness.names() | registered if self._liveness.expired(w)}
        slow = {w for w in registered - silent if self._liveness.slow_to_answer(w)}
        for unknown in silent - registered:  # it synced without being registered, and is gone
            self._liveness.forget(unknown)
        return [*sorted(silent & registered), *sorted(lost), *sorted(slow)]

    def due(self, conn: Connection, key: str) -> bool:
        if self._liveness.expired(key) or not workers.is_registered(conn, key):
            return True
        return bool(self._unacknowledged(conn, key))

    def _unacknowledged(self, conn: Connection, key: str) -> Sequence[Task]:
        """Tasks that were assigned to it a while ago, and that it never reported as held."""
        if not self._liveness.slow_to_answer(key):
            return ()
        assigned = claims.assigned_to(conn, [key])
        return [task for task in assigned if task.status is TaskStatus.SCHEDULED]

    def reconcile(self, conn: Connection, key: str) -> None:
        if not self.due(conn, key):
            return  # it synced, or registered again, in the meantime
        silent_s, now_ms = self._liveness.silent_for_s(key), self._clock.wall_ms()
        if not self._liveness.expired(key) and workers.is_registered(conn, key):
            for seen in self._unacknowledged(conn, key):
                task = tasks.current(conn, seen.claim)
                if task is None or task.status is not TaskStatus.SCHEDULED:
                    continue  # it has just said that it holds it
                error = f"worker {key} did not say within {silent_s:.0f} s that it holds it"
                worker_lost(conn, task, error, cause=FailureCause.LOST, now_ms=now_ms)
            return
        if workers.unregister(conn, key):
            log.warning("worker lost", extra={"worker": key, "silent_s": round(silent_s)})
            self._liveness.forget(key)
        # Only its own tasks, so that a broken row of one worker does not keep back those of others.
        for task in claims.assigned_to(conn, [key])[:REQUEUE_MAX]:
            error = f"worker {task.worker_id} is gone (no word from it for {silent_s:.0f} s)"
            worker_lost(conn, task, error, cause=FailureCause.LOST, now_ms=now_ms)


@dataclass(frozen=True, slots=True)
class StalledExecution:
    """An execution to give up, and why. `epoch`: only if that epoch is still prepared."""

    claim: Claim
    reason: str
    epoch: int | None = None


@dataclass(slots=True)
class _Watched:
    """The last report of one execution, and since when it says the same."""

    worker: str
    task: Task
    progress: Progress
    heard_at_s: float
    moved_at_s: float  # when `activity` was first reported as it is
    committing_at_s: float  # when `committing` was first reported as it is
    begun_at_s: float  # when this leader had the first report of it

    def note(self, task: Task, progress: Progress, now_s: float) -> None:
        if progress.activity != self.progress.activity:
            self.moved_at_s = now_s
        if progress.committing != self.progress.committing:
            self.committing_at_s = now_s
        self.task, self.progress, self.heard_at_s = task, progress, now_s

    def late_commit(self) -> StalledExecution | None:
        epoch, claim = self.progress.committing, self.task.claim
        if epoch is None:
            return None
        late_s = self.heard_at_s - self.committing_at_s
        timeout_ms = PipelineOrder.of(self.task.payload).commit_timeout_ms
        if late_s * 1000 <= timeout_ms:
            return None
        reason = (
            f"epoch {epoch} is prepared, and execution {claim.execution} on worker {self.worker} "
            f"has been committing it to its sinks for {late_s:.1f} s without completing it; "
            f"checkpoint.timeout is {timeout_ms} ms: raise it in the job's env if they need longer"
        )
        return StalledExecution(claim, reason, epoch)

    def overdue(self, timeout_s: float) -> StalledExecution | None:
        """Tasks of tables have a time limit; a pipeline may run for ever."""
        took_s = self.heard_at_s - self.begun_at_s
        if self.task.kind not in OF_TABLES or took_s <= timeout_s:
            return None
        claim = self.task.claim
        reason = (
            f"execution {claim.execution} on worker {self.worker} has been at its {self.task.kind} "
            f"for {took_s:.0f} s; optimizer.task-execute-timeout is {timeout_s:g} s"
        )
        return StalledExecution(claim, reason)

    def standstill(self, timeout_s: float) -> StalledExecution | None:
        still_s = self.heard_at_s - self.moved_at_s
        if self.progress.activity == 0 or still_s <= timeout_s:
            return None
        claim = self.task.claim
        reason = (
            f"execution {claim.execution} on worker {self.worker} stands still: no sign of life "
            f"for {still_s:.0f} s in step {self.progress.step!r} of epoch {self.progress.epoch}; "
            f"execution.stall-timeout is {timeout_s:g} s"
        )
        return StalledExecution(claim, reason)


class ExecutionMonitor:
    """Lives for one leader term. The writer's thread notes reports, the passes read the verdict."""

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

    def note_progress(self, worker: str, assigned: Sequence[tuple[Task, Progress | None]]) -> None:
        """Note all tasks that are assigned to a worker and their progress, once it is committed.

        A task without progress this time keeps its times; one no longer assigned is forgotten.
        """
        now_s = self._clock.monotonic_s()
        with self._lock:
            before, watching = self._by_worker.pop(worker, {}), dict[Claim, _Watched]()
            for task, progress in assigned:
                watched = before.get(task.claim)
                if watched is not None and progress is not None:
                    watched.note(task, progress, now_s)
                elif progress is not None:
                    watched = _Watched(worker, task, progress, now_s, now_s, now_s, now_s)
                if watched is not None:
                    watching[task.claim] = watched
            if watching:
                self._by_worker[worker] = watching

    def forget(self, worker: str) -> None:
        with self._lock:
            self._by_worker.pop(worker, None)

    def stalled(self) -> Sequence[StalledExecution]:
        with self._lock:
            watched = [each for held in self._by_worker.values() for each in held.values()]
            return [stalled for each in watched if (stalled := self._judge(each)) is not None]

    def find_stalled(self, claim: Claim) -> StalledExecution | None:
        with self._lock:
            candidates = (held.get(claim) for held in self._by_worker.values())
            watched = next((each for each in candidates if each is not None), None)
            return self._judge(watched) if watched is not None else None

    def _judge(self, watched: _Watched) -> StalledExecution | None:
        late = watched.late_commit() or watched.overdue(self._execute_timeout_s)
        return late or watched.standstill(self._stall_timeout_s)


class StallReconciler:
    """Fails executions that stand still, overrun their limit, or hang in a commit (D5)."""

    name = "executions"

    def __init__(self, monitor: ExecutionMonitor, clock: Clock) -> None:
        self._monitor, self._clock = monitor, clock

    def keys(self) -> Sequence[str]:
        return [stalled.claim.execution for stalled in self._monitor.stalled()]

    def due(self, conn: Connection, key: str) -> bool:
        stalled = self._monitor.find_stalled(_claim_of(key))
        task = tasks.get(conn, stalled.claim.task) if stalled else None
        current = task is not None and task.status in ASSIGNED
        return (
            stalled is not None
            and task is not None
            and current
            and task.claim == stalled.claim
            and _is_still_stalled(conn, task, stalled)
        )

    def reconcile(self, conn: Connection, key: str) -> None:
        stalled = self._monitor.find_stalled(_claim_of(key))
        task = tasks.current(conn, stalled.claim) if stalled else None
        if stalled is not None and task is not None and _is_still_stalled(conn, task, stalled):
            now_ms = self._clock.wall_ms()
            attempt_failed(conn, task, stalled.reason, retry=True, now_ms=now_ms)


def _claim_of(key: str) -> Claim:
    task, _, attempt = key.rpartition(".")
    return Claim(task, int(attempt))


def _is_still_stalled(conn: Connection, task: Task, stalled: StalledExecution) -> bool:
    """Whether that still holds: the epoch of a slow commit may be completed by now, because its
    report came with the same sync."""
    if stalled.epoch is None:
        return True
    epoch = epochs.get(conn, place_of(conn, task).at(stalled.epoch))
    return epoch is not None and epoch.status is EpochStatus.PREPARED
