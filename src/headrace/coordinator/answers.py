"""Answers on their way from the writer's thread to the event loop.

A batch of syncs is answered at once, so their coroutines are woken at once: by one call into the
loop, however many they are. An ordinary future would make one for each.
"""

from __future__ import annotations

import asyncio
import threading
from typing import Any, Protocol


class Settled(Protocol):
    """What the writer needs of an answer; a `concurrent.futures.Future` is one."""

    def set_running_or_notify_cancel(self) -> bool: ...

    def set_result(self, result: Any, /) -> None: ...

    def set_exception(self, exception: BaseException | None, /) -> None: ...


class LoopAnswers:
    """The answers that coroutines of one event loop wait for."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._settled: list[LoopAnswer] = []

    def expect(self) -> LoopAnswer:
        """Call it on the event loop, then await its `waiting`."""
        return LoopAnswer(self, asyncio.get_running_loop())

    def add(self, answer: LoopAnswer, loop: asyncio.AbstractEventLoop) -> None:
        with self._lock:
            first = not self._settled
            self._settled.append(answer)
        if first:
            loop.call_soon_threadsafe(self._deliver)

    def _deliver(self) -> None:
        with self._lock:
            settled, self._settled = self._settled, []
        for answer in settled:
            answer.deliver()


class LoopAnswer:
    def __init__(self, among: LoopAnswers, loop: asyncio.AbstractEventLoop) -> None:
        self._among, self._loop = among, loop
        self.waiting: asyncio.Future[Any] = loop.create_future()
        self._result: Any = None
        self._error: BaseException | None = None

    def set_running_or_notify_cancel(self) -> bool:
        return True  # a client that hung up is found out on the loop

    def set_result(self, result: Any, /) -> None:
        self._result = result
        self._among.add(self, self._loop)

    def set_exception(self, exception: BaseException | None, /) -> None:
        self._error = exception
        self._among.add(self, self._loop)

    def deliver(self) -> None:
        if self.waiting.done():
            return  # its client hung up; what it was given stands
        if self._error is not None:
            self.waiting.set_exception(self._error)
        else:
            self.waiting.set_result(self._result)
