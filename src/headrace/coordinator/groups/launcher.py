"""The launcher: has containers start intended launches, stop released ones and report on orphans.

A start can't be fenced. So the intent is stored first, trust in the own term is checked right
before the call, a start is idempotent for one launch number, and its answer is recorded for that
launch only. The next leader finds intents without an answer, and repeats them (R8). What was
started for a record that has been dropped meanwhile is ended by the leader that started it.

`ContainerWork` decides which call, if any, is due for a resource. A start whose outcome is unknown
may still come up: one of the former leader, or one that failed without an answer. It is not stopped
before its time is over, since a stop that comes first finds nothing to end, and then no record is
left of what comes up.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import assert_never

from sqlalchemy import Connection, Engine

from headrace.clock import Clock
from headrace.containers.container import (
    Elsewhere,
    Launch,
    Launched,
    LaunchState,
    Withdrawn,
    WorkerContainer,
)
from headrace.coordinator.context import GroupOptions, Metrics
from headrace.coordinator.groups.container_calls import (
    CallKind,
    ContainerCalls,
    FailureLog,
    end_of,
    reason_of,
    why_not_stopped,
)
from headrace.coordinator.groups.snapshot import DRAIN_MAX_MS, is_given_up
from headrace.errors import Fenced, HeadraceError, Unavailable
from headrace.model.groups import LaunchStep, ResourceErrorKind
from headrace.seams import seam
from headrace.store.core.engine import reading
from headrace.store.core.transactions import Term, fenced
from headrace.store.groups import resources
from headrace.store.groups.resources import Resource
from headrace.store.tasks import claims, workers

log = logging.getLogger(__name__)

STOP_GRACE_S = 30.0  # for a worker to give back what it holds
EARLIER_GRACE_S = 5.0  # for a worker that fell silent and is replaced
TURN_NOTED_MS = 60_000  # how often it is recorded that a start still waits for its turn
LOOK_INTERVAL_S = 10.0  # at most, between two status calls for an orphan
LOOKS_PER_GRACE = 3  # at least, before it is started again or given up: that needs the answer
LANDS_MAX_S = 60.0  # after that, a start of unknown outcome does not come up any more


class Launcher:
    """`run` is called by every pass, and never waits for a container. Lives for one leader term."""

    def __init__(
        self,
        engine: Engine,
        term: Term,
        clock: Clock,
        options: GroupOptions,
        *,
        trusted: Callable[[], bool],
        metrics: Metrics | None = None,
    ) -> None:
        self._engine, self._term, self._clock = engine, term, clock
        self._options, self._trusted = options, trusted
        self._metrics = metrics or Metrics()
        self._calls = ContainerCalls(clock, self._do)
        self._work = ContainerWork(clock, options)
        self._failures = FailureLog()

    def run(self) -> None:
        with reading(self._engine) as conn:
            known = resources.all_of_them(conn)
            calls = self._work.calls_for(conn, known)
        ids = {each.id for each in known}
        self._calls.forget(but=ids)
        self._failures.forget(but=ids)
        for resource, what in calls:
            self._calls.ask(resource, what)
        self._note_waiting([each for each, what in calls if what is CallKind.START])

    def stop(self, *, wait: bool = False) -> None:
        self._calls.stop(wait=wait)

    def wait(self, timeout_s: float) -> None:
        """Wait until all calls are answered; for tests, and for a clean end."""
        self._calls.wait(timeout_s)

    def _note_waiting(self, starts: Sequence[Resource]) -> None:
        """A start that still waits for its turn is no attempt yet: its grace period begins anew."""
        now_ms = self._clock.wall_ms()
        old = [each for each in starts if now_ms - (each.launched_at_ms or 0) > TURN_NOTED_MS]
        waiting = [each for each in old if self._calls.waits(each, CallKind.START)]
        if waiting:
            with fenced(self._engine, self._term) as conn:
                for each in waiting:
                    resources.note_start_waits(conn, each, now_ms=now_ms)

    def _do(self, resource: Resource, what: CallKind) -> None:
        if not self._trusted():
            return  # another coordinator leads by now, and finds the same intent
        try:
            match what:
                case CallKind.START:
                    self._start(resource)
                case CallKind.STOP:
                    self._stop(resource)
                case CallKind.LOOK:
                    self._check_status(resource)
                case CallKind.DROP:
                    self._drop(resource)
                case _:
                    assert_never(what)
        except Exception as error:  # noqa: BLE001  any error is logged, and the call repeated
            how = "broken off" if isinstance(error, HeadraceError) else "failed"
            self._failures.report(f"launching {how}", resource, error, what=what)
            self._calls.pause(resource, what)

    def _launch(self, resource: Resource) -> tuple[WorkerContainer, Launch]:
        return self._options.containers[resource.container], launch_of(resource, self._options)

    def _start(self, resource: Resource) -> None:
        container, launch = self._launch(resource)
        seam("before launch")
        try:
            self._end_earlier(container, launch, attempts=resource.attempts)
            if not self._trusted():  # ending others took its time
                facts = {"resource": resource.id, "reason": "another coordinator leads by now"}
                log.warning("launching broken off", extra=facts)
                return
            launched = self._begin(container, launch)
        except Exception as error:  # noqa: BLE001  any error counts as an attempt (R4)
            self._failed(container, resource, error)
            return
        seam("launched, before it is recorded")
        if not self._record(resource, launched):
            self._end_unknown(container, launch)
            return
        self._failures.succeeded(resource)
        if resource.attempts:
            self._metrics.restarts.inc()
        log.info("launched", extra={"resource": resource.id, "launch": resource.launch})

    def _begin(self, container: WorkerContainer, launch: Launch) -> Launched:
        try:
            return container.start(launch)
        except Unavailable:
            self._work.note_unknown_start(launch.resource)
            raise

    def _record(self, resource: Resource, launched: Launched) -> bool:
        """Record the start. False: no record has this launch any more, so nobody will ask about
        it."""
        now_ms = self._clock.wall_ms()
        try:
            if self._write(
                lambda conn: resources.started(conn, resource, launched.properties, now_ms=now_ms)
            ):
                return True
        except Fenced:
            # The new leader finds the same intent, repeats the start and learns what we started.
            # But it may have been asked to release the resource, and have been faster.
            if self._is_known(resource):
                raise
            return False
        return self._is_known(resource)  # it is recorded: the start was answered twice

    def _is_known(self, resource: Resource) -> bool:
        """Whether there is a record that has this launch."""
        with reading(self._engine) as conn:
            known = resources.get(conn, resource.id)
        return known is not None and known.launch == resource.launch

    def _end_unknown(self, container: WorkerContainer, launch: Launch) -> None:
        """End what was just started for a record that is gone; this is tried only once."""
        facts = {"resource": launch.resource, "launch": launch.number}
        log.warning("started what is not wanted any more", extra=facts)
        if not container.supports.stop:
            return  # its worker is refused when it registers, and ends
        try:
            self._end(container, launch, grace_s=EARLIER_GRACE_S)
        except Exception:
            log.exception("it could not be stopped, and nobody tries again", extra=facts)

    def _failed(self, container: WorkerContainer, resource: Resource, error: Exception) -> None:
        self._failures.report("launch failed", resource, error)
        self._metrics.launch_failures.inc()
        reason, not_started = reason_of(error), ResourceErrorKind.NOT_STARTED
        if container.supports.restart:
            self._write(lambda conn: resources.failed(conn, resource, not_started, reason))
            return
        # A container heals only what exists, and nobody restarts this (R6): repeat the start.
        if isinstance(error, Withdrawn):  # needs a new number; the reason is recorded
            now_ms, tried = self._clock.wall_ms(), resource.attempts
            self._write(
                lambda conn: resources.intend(conn, resource, attempts=tried, now_ms=now_ms)
            )
            return
        self._write(lambda conn: resources.note_error(conn, resource, not_started, reason))
        self._calls.pause(resource, CallKind.START)

    def _end_earlier(self, container: WorkerContainer, launch: Launch, *, attempts: int) -> None:
        """End whatever is left of earlier launches: one that hangs must not run beside its
        successor.

        All launches since the resource lost its worker are ended, not only the one before: that one
        may have failed or been skipped, and so have left its own predecessor running.
        """
        if container.supports.stop:
            for number in range(max(1, launch.number - attempts), launch.number):
                self._end(container, replace(launch, number=number), grace_s=EARLIER_GRACE_S)

    def _end(self, container: WorkerContainer, launch: Launch, *, grace_s: float) -> None:
        try:
            container.stop(launch, grace_s=grace_s)
        except Elsewhere as error:
            # Its machine may be gone for good. If it is not, the worker ends by itself as soon as
            # it is refused: its launch is outdated, or its resource unknown.
            facts = {"resource": launch.resource, "launch": launch.number, "reason": str(error)}
            log.warning("launch can't be ended from here", extra=facts)

    def _stop(self, resource: Resource) -> None:
        """Stop a resource. Its record is dropped only once nothing of it is left: nobody would know
        of the rest."""
        container, launch = self._launch(resource)
        if container.supports.stop and self._work.may_land(resource):
            return  # its start failed after this was decided; the next pass sees that
        try:
            self._end_earlier(container, launch, attempts=resource.attempts)
            if container.supports.stop:
                self._end(container, launch, grace_s=STOP_GRACE_S)
        except Exception as error:  # noqa: BLE001  any error is shown to people
            self._not_stopped(resource, error)
            return
        self._drop(resource)

    def _not_stopped(self, resource: Resource, error: Exception) -> None:
        self._calls.pause(resource, CallKind.STOP)
        self._failures.report("stop failed", resource, error)
        reason = why_not_stopped(error)
        if reason != resource.error:
            kind = ResourceErrorKind.NOT_STOPPED
            self._write(lambda conn: resources.note_error(conn, resource, kind, reason))

    def _drop(self, resource: Resource) -> None:
        now_ms = self._clock.wall_ms()
        dropped = self._write(lambda conn: _dropped(conn, resource, now_ms=now_ms))
        if dropped and is_given_up(resource):
            self._metrics.given_up.inc()

    def _check_status(self, resource: Resource) -> None:
        """Record how the worker of an orphan ended, or what keeps it from working, for people."""
        container, launch = self._launch(resource)
        if not container.supports.status:
            return
        status = container.status(launch)
        self._failures.succeeded(resource)
        error, ended = end_of(status), ResourceErrorKind.ENDED
        if status.state is not LaunchState.RUNNING and not container.supports.restart:
            # The container has nothing to heal, and nobody starts it again (R6). So the resource no
            # longer counts as coming back, and another may be requested for the floor.
            self._write(lambda conn: resources.failed(conn, resource, ended, error))
        elif error and error != resource.error:
            self._write(lambda conn: resources.note_error(conn, resource, ended, error))

    def _write(self, work: Callable[[Connection], bool]) -> bool:
        with fenced(self._engine, self._term) as conn:
            return work(conn)


def launch_of(resource: Resource, options: GroupOptions) -> Launch:
    """The latest launch of a resource, as its container gets it."""
    return Launch(
        resource=resource.id,
        number=resource.launch,
        group=resource.group,
        threads=resource.threads,
        memory_mb=resource.memory_mb,
        coordinators=options.coordinators,
        properties=resource.properties,
    )


def _dropped(conn: Connection, resource: Resource, *, now_ms: int) -> bool:
    """Drop the record of a resource, and first any worker row it still has (R3). A resource whose
    worker registered meanwhile, for this or a later launch, is no longer to be released and stays
    (R4)."""
    current = resources.lock(conn, resource.id)
    if current is None or not current.wanted_released or current.launch != resource.launch:
        return False
    worker = workers.of_resource(conn, resource.id)
    if worker is not None:
        workers.unregister(conn, worker.id)
    resources.drop(conn, current, now_ms=now_ms)
    log.info("resource released", extra={"resource": resource.id, "reason": current.told or ""})
    return True


class ContainerWork:
    """Decides which call is due for each resource. Lives for one leader term."""

    def __init__(self, clock: Clock, options: GroupOptions) -> None:
        self._clock, self._options = clock, options
        grace_s = options.auto_restart.grace_ms / 1000
        self._look_every_s = min(LOOK_INTERVAL_S, grace_s / LOOKS_PER_GRACE)
        self._look_at_s: dict[str, float] = {}
        self._drains_seen_ms: dict[str, int] = {}  # by resource: when it was first seen draining
        self._lands_until_s: dict[str, float] | None = None

    def calls_for(
        self, conn: Connection, known: Sequence[Resource]
    ) -> list[tuple[Resource, CallKind]]:
        """The calls that are due. `known`: all resources that there are."""
        self._remember(known)
        calls = [(each, self._what(conn, each)) for each in known]
        return [(each, what) for each, what in calls if what is not None]

    def note_unknown_start(self, resource: str) -> None:
        """Note a start whose outcome is unknown."""
        assert self._lands_until_s is not None, "nothing is asked before the first look"
        self._lands_until_s[resource] = self._clock.monotonic_s() + LANDS_MAX_S

    def _remember(self, known: Sequence[Resource]) -> None:
        ids = {each.id for each in known}
        if self._lands_until_s is None:  # the former leader may have started any of these
            until_s = self._clock.monotonic_s() + LANDS_MAX_S
            self._lands_until_s = dict.fromkeys(ids, until_s)
        for times in (self._look_at_s, self._lands_until_s, self._drains_seen_ms):
            for gone in set(times) - ids:
                del times[gone]

    def _what(self, conn: Connection, resource: Resource) -> CallKind | None:
        container = self._options.containers.get(resource.container)
        if resource.wanted_released:
            return self._ending(conn, resource, container)
        if container is None:
            return None
        if resource.step is LaunchStep.INTENDED:
            return CallKind.START
        # A container that heals itself may report one obstacle after the other.
        unexplained = resource.error is None or not container.supports.restart
        orphaned = resource.orphaned_since_ms is not None and unexplained
        return CallKind.LOOK if orphaned and self._may_look(resource) else None

    def _ending(
        self, conn: Connection, resource: Resource, container: WorkerContainer | None
    ) -> CallKind | None:
        if not self._is_to_go(conn, resource):
            return None
        if container is None:
            return CallKind.DROP
        return None if container.supports.stop and self.may_land(resource) else CallKind.STOP

    def _is_to_go(self, conn: Connection, resource: Resource) -> bool:
        """Whether to stop it: its worker is gone, holds no task any more, or has had its time to
        finish."""
        worker = workers.of_resource(conn, resource.id)
        if worker is None:
            return True
        if worker.drain_since_ms == 0:
            self._drains_seen_ms.pop(resource.id, None)
            return False
        # A drain may carry the time of a node whose clock is ahead: it began by when we saw it.
        now_ms = self._clock.wall_ms()
        seen_ms = self._drains_seen_ms.setdefault(resource.id, now_ms)
        late = now_ms - min(worker.drain_since_ms, seen_ms) > DRAIN_MAX_MS
        return late or not claims.count_held_by(conn, worker.id)

    def may_land(self, resource: Resource) -> bool:
        """Whether a start of unknown outcome may still come up."""
        if resource.step is LaunchStep.STARTED:
            return False
        return self._clock.monotonic_s() < (self._lands_until_s or {}).get(resource.id, 0)

    def _may_look(self, resource: Resource) -> bool:
        """Whether its status is due: not at every pass."""
        now_s = self._clock.monotonic_s()
        if resource.step is not LaunchStep.STARTED or now_s < self._look_at_s.get(resource.id, 0):
            return False
        self._look_at_s[resource.id] = now_s + self._look_every_s
        return True
