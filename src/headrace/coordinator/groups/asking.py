"""Questions to containers, each on a thread: about one resource one at a time.

A start can't be fenced, so nothing else is said about a resource while its start is under way: a
stop would find nothing to end, and what comes up afterwards would have nobody who knows of it (R8).
Each container has threads of its own, and how orphans do is asked on others than starts and stops.
So a place that does not answer holds up nobody else, and its orphans hold up no start.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from enum import StrEnum

from headrace.clock import Clock
from headrace.coordinator.groups.look import START_MAX_MS
from headrace.store.resources import Resource

AT_ONCE_MAX = 4  # starts and stops of one container at the same time
LOOKS_AT_ONCE_MAX = 2  # and so many looks besides
ASK_PAUSE_S = 10.0  # after a question that broke off, until it is asked again
ANSWER_MAX_S = START_MAX_MS / 1000  # a container that has not answered by then never does


class What(StrEnum):
    START = "start"
    STOP = "stop"
    LOOK = "look"  # how the worker of an orphan does
    DROP = "drop"  # asks nobody: its container is not configured any more


@dataclass(eq=False, slots=True)
class _Question:
    resource: Resource
    what: What
    begun_s: float | None = None  # None: it waits for a thread
    answered: Future[None] = field(init=False)

    def is_of(self, resource: Resource, what: What) -> bool:
        return (self.resource.launch, self.what) == (resource.launch, what)


class Asking:
    """Of one term. `do` asks, and writes the answer down."""

    def __init__(self, clock: Clock, do: Callable[[Resource, What], None]) -> None:
        self._clock, self._do = clock, do
        # By container; those that are asked nothing share one. They are made when first needed.
        self._pools: dict[tuple[str, bool], ThreadPoolExecutor] = {}
        self._asked: dict[str, _Question] = {}  # by resource: the latest one
        self._again_at_s: dict[tuple[str, int, What], float] = {}
        self._lock = threading.Lock()

    def ask(self, resource: Resource, what: What) -> None:
        """Unless another question about the resource is under way, or this one has its pause. One
        that still waits for a thread is replaced: it is of no use any more."""
        key = (resource.id, resource.launch, what)
        with self._lock:
            before = self._asked.get(resource.id)
            pauses = self._clock.monotonic_s() < self._again_at_s.get(key, 0)
            if pauses or (before is not None and self._holds_up(before, resource, what)):
                return
            self._again_at_s.pop(key, None)
            question = self._asked[resource.id] = _Question(resource, what)
            question.answered = self._pool(resource, what).submit(self._run, question)

    def waits(self, resource: Resource, what: What) -> bool:
        """Whether this was to be asked, and nobody was asked yet: others are before it."""
        with self._lock:
            found = self._asked.get(resource.id)
            if found is None or found.answered.done():
                return False
            return found.begun_s is None or not found.is_of(resource, what)

    def pause(self, resource: Resource, what: What) -> None:
        with self._lock:
            key = (resource.id, resource.launch, what)
            self._again_at_s[key] = self._clock.monotonic_s() + ASK_PAUSE_S

    def forget(self, *, but: Collection[str]) -> None:
        """What is known of resources that are gone."""
        with self._lock:
            self._asked = {
                each: question
                for each, question in self._asked.items()
                if each in but or not question.answered.done()
            }
            self._again_at_s = {k: at_s for k, at_s in self._again_at_s.items() if k[0] in but}

    def stop(self, *, wait: bool = False) -> None:
        """Ask nothing more. `wait`: until all that is under way has ended."""
        with self._lock:
            pools = list(self._pools.values())
        for pool in pools:
            pool.shutdown(wait=wait, cancel_futures=True)

    def wait(self, timeout_s: float) -> None:
        """Until all that was asked is answered."""
        with self._lock:
            asked = [each.answered for each in self._asked.values()]
        for each in asked:
            each.result(timeout_s)

    def _holds_up(self, before: _Question, resource: Resource, what: What) -> bool:
        if before.answered.done():
            return False
        if before.is_of(resource, what):
            return True
        begun_s = before.begun_s
        return begun_s is not None and self._clock.monotonic_s() < begun_s + ANSWER_MAX_S

    def _pool(self, resource: Resource, what: What) -> ThreadPoolExecutor:
        looks = what is What.LOOK
        name = "" if what is What.DROP else resource.container
        if (name, looks) not in self._pools:
            at_once = LOOKS_AT_ONCE_MAX if looks else AT_ONCE_MAX
            prefix = f"{'looking' if looks else 'launching'} {name}"
            self._pools[name, looks] = ThreadPoolExecutor(at_once, thread_name_prefix=prefix)
        return self._pools[name, looks]

    def _run(self, question: _Question) -> None:
        with self._lock:
            if self._asked.get(question.resource.id) is not question:
                return  # another one took its place
            question.begun_s = self._clock.monotonic_s()
        self._do(question.resource, question.what)
