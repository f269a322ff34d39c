"""The second half of an epoch, beside the first half of the next one.

While Spark stages epoch N + 1, a thread of the execution waits until N is recorded as prepared,
commits and completes it. One thread for all of them, in their order: N + 1 is committed nowhere
before N is committed everywhere.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextvars import copy_context

from headrace.worker.outbox import LOOK_INTERVAL_S


class Tail:
    """Does one piece of work at a time. An execution has one, and ends it."""

    def __init__(self, name: str, *, waiting: Callable[[], None]) -> None:
        """`waiting` is called again and again by whoever waits for the work to be done."""
        self._name, self._waiting = name, waiting
        self._thread: threading.Thread | None = None
        self._given, self._idle = threading.Event(), threading.Event()
        self._idle.set()
        self._over = False
        self._work: Callable[[], None] | None = None
        self._error: BaseException | None = None

    def begin(self, work: Callable[[], None]) -> None:
        """Have it done, once what was begun before is done. Raises what that raised."""
        self.join()
        self._work = work
        self._idle.clear()
        if self._thread is None:
            # One for the whole execution: each thread that asks the JVM has one there, too.
            # In our context, too: it speaks for the same execution.
            self._thread = threading.Thread(
                target=copy_context().run, args=(self._main,), name=self._name, daemon=True
            )
            self._thread.start()
        self._given.set()

    def join(self) -> None:
        """Wait until what was begun is done. It is told to stop by whoever stops the execution,
        and every wait in it has a limit of its own."""
        while not self._idle.wait(LOOK_INTERVAL_S):
            self._waiting()
        self.check()

    def check(self) -> None:
        """Raise what the last piece of work raised, if it has ended."""
        if self._idle.is_set() and self._error is not None:
            error, self._error = self._error, None
            raise error

    def end(self) -> None:
        """Nothing of an execution goes on after its end: its task may be somebody else's then."""
        while not self._idle.wait(LOOK_INTERVAL_S):
            pass
        self._over = True
        self._given.set()

    def _main(self) -> None:
        while True:
            self._given.wait()
            self._given.clear()
            if self._over:
                return
            assert self._work is not None
            try:
                self._work()
            except BaseException as error:  # noqa: BLE001  raised again by whoever joins
                self._error = error
            self._idle.set()
