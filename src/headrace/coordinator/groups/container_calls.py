"""Calls to containers (start, stop, status), on threads, one at a time for each resource.

A start can't be fenced, so no other call is made for a resource while its start is under way: a
stop would find nothing to end, and what comes up afterwards would be known to nobody (R8). Each
container has threads of its own, and the status of orphans is asked on other threads than starts
and stops. So a container that does not answer delays no other, and its orphans delay no start.

`FailureLog` logs what went wrong with a container once; the same text is kept with the resource,
for people.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Collection
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from enum import StrEnum

from headrace.clock import Clock
from headrace.containers.container import LaunchState, LaunchStatus
from headrace.coordinator.groups.snapshot import START_MAX_MS
from headrace.errors import HeadraceError
from headrace.model.text import redacted_to
from headrace.store.groups.resources import Resource

log = logging.getLogger(__name__)

AT_ONCE_MAX = 4  # concurrent starts and stops of one container
LOOKS_AT_ONCE_MAX = 2  # concurrent status calls besides
ASK_PAUSE_S = 10.0  # until a failed call is repeated
ANSWER_MAX_S = START_MAX_MS / 1000  # an answer that has not come by then never does
ERROR_CHARACTERS_MAX = 2000


class CallKind(StrEnum):
    START = "start"
    STOP = "stop"
    LOOK = "look"  # asks for the status of an orphan's worker
    DROP = "drop"  # calls nobody: its container is no longer configured


@dataclass(eq=False, slots=True)
class _Call:
    resource: Resource
    what: CallKind
    begun_s: float | None = None  # monotonic; None: it waits for a thread
    answered: Future[None] = field(init=False)

    def matches(self, resource: Resource, what: CallKind) -> bool:
        return (self.resource.launch, self.what) == (resource.launch, what)


class ContainerCalls:
    """`do` makes a call and records the answer. Lives for one leader term."""

    def __init__(self, clock: Clock, do: Callable[[Resource, CallKind], None]) -> None:
        self._clock, self._do = clock, do
        # By container, made when first needed; DROP, which calls nobody, shares one pool.
        self._pools: dict[tuple[str, bool], ThreadPoolExecutor] = {}
        self._calls: dict[str, _Call] = {}  # by resource: its latest call
        self._again_at_s: dict[tuple[str, int, CallKind], float] = {}
        self._lock = threading.Lock()

    def ask(self, resource: Resource, what: CallKind) -> None:
        """Make the call, unless another one about the resource is under way or this one is paused.
        A call that still waits for a thread is obsolete, and is replaced."""
        key = (resource.id, resource.launch, what)
        with self._lock:
            before = self._calls.get(resource.id)
            pauses = self._clock.monotonic_s() < self._again_at_s.get(key, 0)
            if pauses or (before is not None and self._holds_up(before, resource, what)):
                return
            self._again_at_s.pop(key, None)
            call = self._calls[resource.id] = _Call(resource, what)
            call.answered = self._pool(resource, what).submit(self._run, call)

    def waits(self, resource: Resource, what: CallKind) -> bool:
        """Whether this call was requested and has not begun: other calls are before it."""
        with self._lock:
            call = self._calls.get(resource.id)
            if call is None or call.answered.done():
                return False
            return call.begun_s is None or not call.matches(resource, what)

    def pause(self, resource: Resource, what: CallKind) -> None:
        """Back off: do not repeat this call for `ASK_PAUSE_S`."""
        with self._lock:
            key = (resource.id, resource.launch, what)
            self._again_at_s[key] = self._clock.monotonic_s() + ASK_PAUSE_S

    def forget(self, *, but: Collection[str]) -> None:
        """Drop the state of resources that are gone, except calls under way. `but`: those that
        exist."""
        with self._lock:
            self._calls = {
                each: call
                for each, call in self._calls.items()
                if each in but or not call.answered.done()
            }
            self._again_at_s = {k: at_s for k, at_s in self._again_at_s.items() if k[0] in but}

    def stop(self, *, wait: bool = False) -> None:
        """Begin no more calls. `wait`: until all that are under way have ended."""
        with self._lock:
            pools = list(self._pools.values())
        for pool in pools:
            pool.shutdown(wait=wait, cancel_futures=True)

    def wait(self, timeout_s: float) -> None:
        """Wait until all calls are answered."""
        with self._lock:
            answers = [each.answered for each in self._calls.values()]
        for each in answers:
            each.result(timeout_s)

    def _holds_up(self, before: _Call, resource: Resource, what: CallKind) -> bool:
        """Whether the call `before` keeps another one from being made."""
        if before.answered.done():
            return False
        if before.matches(resource, what):
            return True
        begun_s = before.begun_s
        return begun_s is not None and self._clock.monotonic_s() < begun_s + ANSWER_MAX_S

    def _pool(self, resource: Resource, what: CallKind) -> ThreadPoolExecutor:
        looks = what is CallKind.LOOK
        name = "" if what is CallKind.DROP else resource.container
        if (name, looks) not in self._pools:
            at_once = LOOKS_AT_ONCE_MAX if looks else AT_ONCE_MAX
            prefix = f"{'looking' if looks else 'launching'} {name}"
            self._pools[name, looks] = ThreadPoolExecutor(at_once, thread_name_prefix=prefix)
        return self._pools[name, looks]

    def _run(self, call: _Call) -> None:
        with self._lock:
            if self._calls.get(call.resource.id) is not call:
                return  # it was replaced by a later call
            call.begun_s = self._clock.monotonic_s()
        self._do(call.resource, call.what)


class FailureLog:
    """Logs the failure of a call once, and again only when the reason differs: a failed call is
    repeated every few seconds, mostly with the same result. Lives for one leader term."""

    def __init__(self) -> None:
        self._reported: dict[str, str] = {}  # by resource: the last failure that was logged

    def report(self, message: str, resource: Resource, error: Exception, **more: str) -> None:
        reason = reason_of(error)
        entry = f"{message} {resource.launch} {reason}"
        if self._reported.get(resource.id) == entry:
            return
        self._reported[resource.id] = entry
        expected = isinstance(error, HeadraceError)
        level, trace = (logging.WARNING, None) if expected else (logging.ERROR, error)
        facts = {"resource": resource.id, "reason": reason, **more}
        log.log(level, message, extra=facts, exc_info=trace)

    def succeeded(self, resource: Resource) -> None:
        self._reported.pop(resource.id, None)

    def forget(self, *, but: Collection[str]) -> None:
        for gone in set(self._reported) - set(but):
            self._reported.pop(gone, None)


def reason_of(error: Exception) -> str:
    return redacted_to(ERROR_CHARACTERS_MAX, str(error) or repr(error))


def why_not_stopped(error: Exception) -> str:
    return f"could not be stopped: {reason_of(error)}"


def end_of(status: LaunchStatus) -> str:
    """How a launch ended, or what keeps it from working; empty when all is well."""
    text = ", ".join(part for part in (_how(status.code), status.said) if part)
    if status.state is not LaunchState.RUNNING:
        text = text or "nobody knows of it"
    return redacted_to(ERROR_CHARACTERS_MAX, text)


def _how(code: int | None) -> str:
    if code is None:
        return ""
    return f"killed by signal {-code}" if code < 0 else f"exit code {code}"
