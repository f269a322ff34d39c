"""Asks containers: to start what is intended, to stop what is released, how an orphan ended.

A start can't be fenced. So the intent stands in the store before, this term is trusted right before
the call, a start said twice for one launch starts once, and its answer is recorded for that launch
only. Whoever leads next finds intents without an answer, and says them again (R8).
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace

from sqlalchemy import Connection, Engine

from headrace.clock import Clock
from headrace.containers.launching import Elsewhere, Launch, LaunchState, WorkerContainer
from headrace.coordinator.groups.look import is_given_up
from headrace.coordinator.metrics import Metrics
from headrace.coordinator.options import GroupOptions
from headrace.errors import Fenced, Unavailable
from headrace.model.groups.resource import LaunchStep
from headrace.model.redaction import redacted
from headrace.seams import seam
from headrace.store import claims, resources, workers
from headrace.store.engine import reading
from headrace.store.fence import Term, fenced
from headrace.store.resources import Resource

log = logging.getLogger(__name__)

AT_ONCE_MAX = 4  # containers asked at the same time
STOP_GRACE_S = 30.0  # for a worker to give back what it holds
EARLIER_GRACE_S = 5.0  # for one that fell silent, and is replaced
DRAIN_MAX_MS = 15 * 60_000  # so long a released worker may finish what it has
ERROR_CHARACTERS_MAX = 2000
LOOK_INTERVAL_S = 10.0  # between two questions how the worker of an orphan ended, and at least
ASK_PAUSE_S = 10.0  # after a question that broke off, until it is asked again
LOOKS_PER_GRACE = 3  # so many before it is started again, or given up: that needs the answer


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
        self._pool = ThreadPoolExecutor(AT_ONCE_MAX, thread_name_prefix="launching")
        self._asked: dict[tuple[str, int, str], Future[None]] = {}
        grace_s = options.auto_restart.grace_ms / 1000
        self._look_every_s = min(LOOK_INTERVAL_S, grace_s / LOOKS_PER_GRACE)
        self._look_at_s: dict[str, float] = {}
        self._again_at_s: dict[tuple[str, int, str], float] = {}
        self._lock = threading.Lock()

    def run(self) -> None:
        with reading(self._engine) as conn:
            wanted = [(each, self._what(conn, each)) for each in resources.all_of_them(conn)]
        for resource, what in wanted:
            if what is not None:
                self._ask(resource, what)

    def stop(self) -> None:
        self._pool.shutdown(wait=False, cancel_futures=True)

    def wait(self, timeout_s: float) -> None:
        """Until all that was asked is answered; for tests, and for a clean end."""
        with self._lock:
            asked = list(self._asked.values())
        for each in asked:
            each.result(timeout_s)

    def _what(self, conn: Connection, resource: Resource) -> str | None:
        if resource.container not in self._options.containers:
            return "drop" if self._is_to_go(conn, resource) else None
        if resource.wanted_released:
            return "stop" if self._is_to_go(conn, resource) else None
        if resource.step is LaunchStep.INTENDED:
            return "start"
        # What heals itself may be held up by one thing after the other.
        heals = not self._options.containers[resource.container].supports.restart
        unexplained = resource.error is None or heals
        orphaned = resource.orphaned_since_ms is not None and unexplained
        return "look" if orphaned and self._may_look(resource) else None

    def _may_look(self, resource: Resource) -> bool:
        """Whether the container is to be asked how it is; not at each pass."""
        now_s = self._clock.monotonic_s()
        if resource.step is not LaunchStep.STARTED or now_s < self._look_at_s.get(resource.id, 0):
            return False
        self._look_at_s[resource.id] = now_s + self._look_every_s
        return True

    def _is_to_go(self, conn: Connection, resource: Resource) -> bool:
        """Released, and its worker is gone, holds nothing any more, or had its time to finish."""
        if not resource.wanted_released:
            return False
        worker = workers.of_resource(conn, resource.id)
        if worker is None:
            return True
        if worker.drain_since_ms == 0:
            return False
        late = self._clock.wall_ms() - worker.drain_since_ms > DRAIN_MAX_MS
        return late or not claims.held_by(conn, worker.id)

    def _ask(self, resource: Resource, what: str) -> None:
        key = (resource.id, resource.launch, what)
        with self._lock:
            before = self._asked.get(key)
            pauses = self._clock.monotonic_s() < self._again_at_s.get(key, 0)
            if pauses or (before is not None and not before.done()):
                return
            self._again_at_s.pop(key, None)
            self._asked = {k: f for k, f in self._asked.items() if not f.done()}
            self._asked[key] = self._pool.submit(self._do, resource, what)

    def _do(self, resource: Resource, what: str) -> None:
        if not self._trusted():
            return  # another one leads by now, and finds the same intent
        try:
            match what:
                case "start":
                    self._start(resource)
                case "stop":
                    self._stop(resource)
                case "look":
                    self._look(resource)
                case _:
                    self._drop(resource)
        except (Fenced, Unavailable) as error:
            facts = {"resource": resource.id, "what": what, "reason": str(error)}
            log.warning("launching broken off", extra=facts)
            self._pause(resource, what)
        except Exception:
            log.exception("launching failed", extra={"resource": resource.id, "what": what})
            self._pause(resource, what)

    def _pause(self, resource: Resource, what: str) -> None:
        with self._lock:
            key = (resource.id, resource.launch, what)
            self._again_at_s[key] = self._clock.monotonic_s() + ASK_PAUSE_S

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
            found = container.start(launch)
        except Exception as error:  # noqa: BLE001  it counts as an attempt, whatever it is (R4)
            self._failed(container, resource, error)
            return
        seam("launched, before it is recorded")
        now_ms = self._clock.wall_ms()
        self._write(lambda conn: resources.started(conn, resource, found.properties, now_ms=now_ms))
        if resource.attempts:
            self._metrics.restarts.inc()
        log.info("launched", extra={"resource": resource.id, "launch": resource.launch})

    def _failed(self, container: WorkerContainer, resource: Resource, error: Exception) -> None:
        told = redacted(str(error) or repr(error))[:ERROR_CHARACTERS_MAX]
        log.warning("launch failed", extra={"resource": resource.id, "reason": told})
        self._metrics.launch_failures.inc()
        if container.supports.restart:
            self._write(lambda conn: resources.failed(conn, resource, told))
            return
        # What heals itself has to be there first, and no keeper starts it again (R6): ask on.
        self._write(lambda conn: resources.note(conn, resource, error=told))
        self._pause(resource, "start")

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
        self._end_earlier(container, launch, attempts=resource.attempts)
        if container.supports.stop:
            self._end(container, launch, grace_s=STOP_GRACE_S)
        self._drop(resource)

    def _drop(self, resource: Resource) -> None:
        if self._write(lambda conn: _dropped(conn, resource)) and is_given_up(resource):
            self._metrics.given_up.inc()

    def _look(self, resource: Resource) -> None:
        """How the worker of an orphan ended, or what keeps it from working, for people."""
        container, launch = self._launch(resource)
        if not container.supports.status:
            return
        found = container.status(launch)
        told = ", ".join(part for part in (_how(found.code), found.said) if part)
        if found.state is not LaunchState.RUNNING:
            told = told or "nobody knows of it"
        error = redacted(told)[:ERROR_CHARACTERS_MAX]
        if error and error != resource.error:
            self._write(lambda conn: resources.note(conn, resource, error=error))

    def _write(self, work: Callable[[Connection], bool]) -> bool:
        with fenced(self._engine, self._term) as conn:
            return work(conn)


def _how(code: int | None) -> str:
    if code is None:
        return ""
    return f"killed by signal {-code}" if code < 0 else f"exit code {code}"


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


def _dropped(conn: Connection, resource: Resource) -> bool:
    """Its record goes, with any worker row it still has first (R3). One whose worker registered
    meanwhile, for this or a later launch, was not wanted gone and stays (R4)."""
    found = resources.lock(conn, resource.id)
    if found is None or not found.wanted_released or found.launch != resource.launch:
        return False
    worker = workers.of_resource(conn, resource.id)
    if worker is not None:
        workers.unregister(conn, worker.id)
    resources.drop(conn, resource.id)
    log.info("resource released", extra={"resource": resource.id, "reason": found.told or ""})
    return True
