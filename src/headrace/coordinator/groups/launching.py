"""Asks containers: to start what is intended, to stop what is released, how an orphan ended.

A start can't be fenced. So the intent stands in the store before, this term is trusted right before
the call, a start said twice for one launch starts once, and its answer is recorded for that launch
only. Whoever leads next finds intents without an answer, and says them again (R8). What was started
for a record that went meanwhile is ended by whoever started it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import assert_never

from sqlalchemy import Connection, Engine

from headrace.clock import Clock
from headrace.containers.launching import (
    Elsewhere,
    Launch,
    Launched,
    LaunchState,
    Withdrawn,
    WorkerContainer,
)
from headrace.coordinator.groups.asking import Asking, What
from headrace.coordinator.groups.due import Due
from headrace.coordinator.groups.look import is_given_up
from headrace.coordinator.groups.telling import Telling, end_of, reason_of, why_not_stopped
from headrace.coordinator.metrics import Metrics
from headrace.coordinator.options import GroupOptions
from headrace.errors import Fenced, HeadraceError, Unavailable
from headrace.seams import seam
from headrace.store import resources, workers
from headrace.store.engine import reading
from headrace.store.fence import Term, fenced
from headrace.store.resources import Resource

log = logging.getLogger(__name__)

STOP_GRACE_S = 30.0  # for a worker to give back what it holds
EARLIER_GRACE_S = 5.0  # for one that fell silent, and is replaced
TURN_NOTED_MS = 60_000  # so often it is noted that a start still waits for its turn


class Launching:
    """Of one term. `run` is called by every pass, and never waits for a container."""

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
        self._asking = Asking(clock, self._do)
        self._due = Due(clock, options)
        self._telling = Telling()

    def run(self) -> None:
        with reading(self._engine) as conn:
            found = resources.all_of_them(conn)
            due = self._due.of(conn, found)
        known = {each.id for each in found}
        self._asking.forget(but=known)
        self._telling.forget(but=known)
        for resource, what in due:
            self._asking.ask(resource, what)
        self._note_waiting([each for each, what in due if what is What.START])

    def stop(self, *, wait: bool = False) -> None:
        self._asking.stop(wait=wait)

    def wait(self, timeout_s: float) -> None:
        """Until all that was asked is answered; for tests, and for a clean end."""
        self._asking.wait(timeout_s)

    def _note_waiting(self, starts: Sequence[Resource]) -> None:
        """A start that its container was not asked for yet is no attempt: its time begins anew."""
        now_ms = self._clock.wall_ms()
        old = [each for each in starts if now_ms - (each.launched_at_ms or 0) > TURN_NOTED_MS]
        waiting = [each for each in old if self._asking.waits(each, What.START)]
        if waiting:
            with fenced(self._engine, self._term) as conn:
                for each in waiting:
                    resources.note(conn, each, launched_at_ms=now_ms)

    def _do(self, resource: Resource, what: What) -> None:
        if not self._trusted():
            return  # another one leads by now, and finds the same intent
        try:
            match what:
                case What.START:
                    self._start(resource)
                case What.STOP:
                    self._stop(resource)
                case What.LOOK:
                    self._look(resource)
                case What.DROP:
                    self._drop(resource)
                case _:
                    assert_never(what)
        except Exception as error:  # noqa: BLE001  whatever it is, it is told, and asked again
            how = "broken off" if isinstance(error, HeadraceError) else "failed"
            self._telling.tell(f"launching {how}", resource, error, what=what)
            self._asking.pause(resource, what)

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
            found = self._begin(container, launch)
        except Exception as error:  # noqa: BLE001  it counts as an attempt, whatever it is (R4)
            self._failed(container, resource, error)
            return
        seam("launched, before it is recorded")
        if not self._record(resource, found):
            self._end_unknown(container, launch)
            return
        self._telling.went_well(resource)
        if resource.attempts:
            self._metrics.restarts.inc()
        log.info("launched", extra={"resource": resource.id, "launch": resource.launch})

    def _begin(self, container: WorkerContainer, launch: Launch) -> Launched:
        try:
            return container.start(launch)
        except Unavailable:
            self._due.broke_off(launch.resource)
            raise

    def _record(self, resource: Resource, found: Launched) -> bool:
        """False: no record is of this launch any more, so nobody will ask about it."""
        now_ms = self._clock.wall_ms()
        try:
            return self._write(
                lambda conn: resources.started(conn, resource, found.properties, now_ms=now_ms)
            )
        except Fenced:
            # Whoever leads now finds the same intent, asks again and is told of what was started:
            # that is his. But he may have been asked to release it, and have been faster.
            with reading(self._engine) as conn:
                known = resources.get(conn, resource.id)
            if known is not None and known.launch == resource.launch:
                raise
            return False

    def _end_unknown(self, container: WorkerContainer, launch: Launch) -> None:
        facts = {"resource": launch.resource, "launch": launch.number}
        log.warning("started what is not wanted any more", extra=facts)
        if not container.supports.stop:
            return  # its worker is refused when it registers, and ends
        try:
            self._end(container, launch, grace_s=EARLIER_GRACE_S)
        except Exception:
            log.exception("it could not be stopped, and nobody tries again", extra=facts)

    def _failed(self, container: WorkerContainer, resource: Resource, error: Exception) -> None:
        self._telling.tell("launch failed", resource, error)
        self._metrics.launch_failures.inc()
        told = reason_of(error)
        if container.supports.restart:
            self._write(lambda conn: resources.failed(conn, resource, told))
            return
        # What heals itself has to be there first, and no keeper starts it again (R6): ask on.
        if isinstance(error, Withdrawn):  # by another number, and why is known from before
            now_ms, tried = self._clock.wall_ms(), resource.attempts
            self._write(
                lambda conn: resources.intend(conn, resource, attempts=tried, now_ms=now_ms)
            )
            return
        self._write(lambda conn: resources.note(conn, resource, error=told))
        self._asking.pause(resource, What.START)

    def _end_earlier(self, container: WorkerContainer, launch: Launch, *, attempts: int) -> None:
        """Whatever is left of earlier launches: one that hangs must not go on beside another.

        All of this orphanhood, not only the one before: that may have failed, or have been passed
        over, and so have left the one before it alone.
        """
        if container.supports.stop:
            for number in range(max(1, launch.number - attempts), launch.number):
                self._end(container, replace(launch, number=number), grace_s=EARLIER_GRACE_S)

    def _end(self, container: WorkerContainer, launch: Launch, *, grace_s: float) -> None:
        try:
            container.stop(launch, grace_s=grace_s)
        except Elsewhere as error:
            # Its machine may be gone for good. If it is not, the worker ends by itself as soon as
            # it is refused, for an older launch or for a resource that nobody knows.
            facts = {"resource": launch.resource, "launch": launch.number, "reason": str(error)}
            log.warning("launch can't be ended from here", extra=facts)

    def _stop(self, resource: Resource) -> None:
        """Its record goes only when nothing is left of it: nobody would know of that any more."""
        container, launch = self._launch(resource)
        if container.supports.stop and self._due.may_land(resource):
            return  # its start broke off after this was decided; the next pass sees that
        try:
            self._end_earlier(container, launch, attempts=resource.attempts)
            if container.supports.stop:
                self._end(container, launch, grace_s=STOP_GRACE_S)
        except Exception as error:  # noqa: BLE001  whatever it is, people have to know
            self._not_stopped(resource, error)
            return
        self._drop(resource)

    def _not_stopped(self, resource: Resource, error: Exception) -> None:
        self._asking.pause(resource, What.STOP)
        self._telling.tell("stop failed", resource, error)
        told = why_not_stopped(error)
        if told != resource.error:
            self._write(lambda conn: resources.note(conn, resource, error=told))

    def _drop(self, resource: Resource) -> None:
        now_ms = self._clock.wall_ms()
        dropped = self._write(lambda conn: _dropped(conn, resource, now_ms=now_ms))
        if dropped and is_given_up(resource):
            self._metrics.given_up.inc()

    def _look(self, resource: Resource) -> None:
        """How the worker of an orphan ended, or what keeps it from working, for people."""
        container, launch = self._launch(resource)
        if not container.supports.status:
            return
        found = container.status(launch)
        self._telling.went_well(resource)
        error = end_of(found)
        if found.state is not LaunchState.RUNNING and not container.supports.restart:
            # Its container has nothing that it could heal, and nobody starts it again (R6). So it
            # no longer counts as coming back: the floor may ask for another one.
            self._write(lambda conn: resources.failed(conn, resource, error))
        elif error and error != resource.error:
            self._write(lambda conn: resources.note(conn, resource, error=error))

    def _write(self, work: Callable[[Connection], bool]) -> bool:
        with fenced(self._engine, self._term) as conn:
            return work(conn)


def launch_of(resource: Resource, options: GroupOptions) -> Launch:
    """The latest one, as its container is told of it."""
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
    """Its record goes, with any worker row it still has first (R3). One whose worker registered
    meanwhile, for this or a later launch, was not wanted gone and stays (R4)."""
    found = resources.lock(conn, resource.id)
    if found is None or not found.wanted_released or found.launch != resource.launch:
        return False
    worker = workers.of_resource(conn, resource.id)
    if worker is not None:
        workers.unregister(conn, worker.id)
    resources.drop(conn, found, now_ms=now_ms)
    log.info("resource released", extra={"resource": resource.id, "reason": found.told or ""})
    return True
