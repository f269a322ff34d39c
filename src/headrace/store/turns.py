"""Writers of one process take turns at a SQLite file, in the order in which they came.

SQLite lets a waiting writer sleep and try again, so one that writes all the time starves the
others; the lease of a busy leader would run out for want of a renewal. Between processes nothing
better than SQLite's own waiting is to be had, and little is needed.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Generator
from contextlib import contextmanager
from weakref import WeakValueDictionary


class Turns:
    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._taken = False
        self._queue: deque[threading.Event] = deque()

    @contextmanager
    def turn(self, timeout_s: float) -> Generator[None]:
        """TimeoutError when the turn did not come."""
        self._take(timeout_s)
        try:
            yield
        finally:
            self._pass_on()

    def _take(self, timeout_s: float) -> None:
        with self._lock:
            if not self._taken:
                self._taken = True
                return
            mine = threading.Event()
            self._queue.append(mine)
        if mine.wait(timeout_s):
            return
        with self._lock:
            if mine not in self._queue:
                return  # it came at the last moment
            self._queue.remove(mine)
        raise TimeoutError

    def _pass_on(self) -> None:
        with self._lock:
            if self._queue:
                self._queue.popleft().set()
            else:
                self._taken = False


_by_file: WeakValueDictionary[str, Turns] = WeakValueDictionary()
_lock = threading.Lock()


def turns_at(file: str) -> Turns:
    """The same for every engine of this process that has the file open."""
    with _lock:
        turns = _by_file.get(file)
        if turns is None:
            turns = _by_file[file] = Turns()
        return turns
