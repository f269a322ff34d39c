"""What the product knows as threads, events, locks, queues and futures, made of fibers."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping
from queue import Empty
from types import TracebackType
from typing import Any

from tests.simulation.world import Fiber, the_world


class Event:
    def __init__(self) -> None:
        self._set = False
        self._waiting: list[Fiber] = []

    def is_set(self) -> bool:
        return self._set

    def set(self) -> None:
        self._set = True
        waiting, self._waiting = self._waiting, []
        for fiber in waiting:
            the_world().wake(fiber)

    def clear(self) -> None:
        self._set = False

    def wait(self, timeout: float | None = None) -> bool:
        if self._set:
            return True
        world = the_world()
        fiber = world.fiber
        self._waiting.append(fiber)
        try:
            world.park(timeout)
        finally:
            if fiber in self._waiting:
                self._waiting.remove(fiber)
        return self._set


class Lock:
    def __init__(self) -> None:
        self._held = False
        self._waiting: deque[Fiber] = deque()

    def __enter__(self) -> bool:
        while self._held:
            world = the_world()
            self._waiting.append(world.fiber)
            world.park(None)
        self._held = True
        return True

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        self._held = False
        if self._waiting:
            the_world().wake(self._waiting.popleft())


class Thread:
    def __init__(
        self,
        *,
        target: Callable[..., object],
        name: str = "",
        daemon: bool = False,
        args: Iterable[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> None:
        self._run = lambda: target(*args, **(kwargs or {}))
        self._owner = getattr(target, "__self__", None)
        self.name, self.daemon = name, daemon
        self.fiber: Fiber | None = None

    def start(self) -> None:
        world = the_world()
        parent = world.fiber
        self.fiber = world.spawn(parent.process, self._run, self.name)
        self.fiber.term = _term_of(self._owner)

    def is_alive(self) -> bool:
        return self.fiber is not None and not self.fiber.dead

    def join(self, timeout: float | None = None) -> None:
        if self.fiber is not None and not self.fiber.dead:
            world = the_world()
            self.fiber.joined.append(world.fiber)
            world.park(timeout)


def _term_of(owner: object) -> int | None:
    """The term that a thread works for, known from the object it belongs to."""
    term = getattr(owner, "_term", None) or getattr(
        getattr(owner, "_leadership", None), "term", None
    )
    return getattr(term, "epoch", None)


def current_thread() -> object:
    return None  # nobody who asks is a thread of its own


class SimpleQueue:
    def __init__(self) -> None:
        self._items: deque[Any] = deque()
        self._some = Event()

    def put(self, item: Any) -> None:
        self._items.append(item)
        self._some.set()

    def qsize(self) -> int:
        return len(self._items)

    def get_nowait(self) -> Any:
        if not self._items:
            raise Empty
        return self._items.popleft()

    def get(self, *, timeout: float | None = None) -> Any:
        if not self._items:
            self._some.clear()
            self._some.wait(timeout)
        return self.get_nowait()


class Future:
    def __init__(self) -> None:
        self._done = Event()
        self._result: Any = None
        self._error: BaseException | None = None

    def __class_getitem__(cls, _: object) -> type[Future]:
        return cls

    def set_running_or_notify_cancel(self) -> bool:
        return True

    def set_result(self, result: Any, /) -> None:
        self._result = result
        self._done.set()

    def set_exception(self, error: BaseException | None, /) -> None:
        self._error = error
        self._done.set()

    def done(self) -> bool:
        return self._done.is_set()

    def result(self, timeout: float | None = None) -> Any:
        if not self._done.wait(timeout):
            raise TimeoutError
        if self._error is not None:
            raise self._error
        return self._result


class Pool:
    """Threads that are lent out, as many as there may be at once."""

    def __init__(self, max_workers: int, thread_name_prefix: str = "") -> None:
        self._free, self._name = max_workers, thread_name_prefix
        self._asked: deque[tuple[Future, Callable[[], object]]] = deque()

    def submit(self, call: Callable[..., object], /, *args: Any) -> Future:
        future = Future()
        self._asked.append((future, lambda: call(*args)))
        if self._free:
            self._free -= 1
            Thread(target=self._work, name=self._name).start()
        return future

    def _work(self) -> None:
        try:
            while self._asked:
                future, call = self._asked.popleft()
                future.set_result(call())
        finally:
            self._free += 1

    def shutdown(self, *, wait: bool = True, cancel_futures: bool = False) -> None:
        assert cancel_futures, "what was not begun is not done"
        assert not wait, "nobody waits for a pool here"
        self._asked.clear()
