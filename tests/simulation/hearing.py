"""What the product logs while a history runs."""

from __future__ import annotations

import logging
from collections.abc import Generator
from contextlib import contextmanager

from headrace.coordinator.jobs import passes
from tests.simulation.world import World

EXPECTED_ERRORS = frozenset({"execution failed", "not committed", "staged files not swept"})


class _Ear(logging.Handler):
    """The product's log: part of the timeline, and errors that nobody foresaw are problems."""

    def __init__(self, world: World) -> None:
        super().__init__()
        self._world = world

    def emit(self, record: logging.LogRecord) -> None:
        message = record.getMessage()
        facts = {k: v for k, v in record.__dict__.items() if k not in _PLAIN}
        self._world.tell(f"{message} {facts or ''}")
        if message == passes.UNMARKED:
            self._world.problem("every_change_is_marked", f"{message} {facts}")
        error = record.exc_info[1] if record.exc_info else None
        if record.levelno >= logging.ERROR and error and message not in EXPECTED_ERRORS:
            self._world.broken(message, error)


_PLAIN = frozenset(logging.makeLogRecord({}).__dict__) | {"message", "taskName"}


@contextmanager
def errors_heard(world: World, *, tell: bool) -> Generator[None]:
    log = logging.getLogger("headrace")
    before = log.level, log.propagate, list(log.handlers)
    log.handlers[:] = [_Ear(world)]
    log.setLevel(logging.INFO if tell else logging.ERROR)
    log.propagate = False
    passes.log.setLevel(logging.WARNING)
    try:
        yield
    finally:
        log.level, log.propagate = before[:2]
        log.handlers[:] = before[2]
        log.setLevel(before[0])
        passes.log.setLevel(logging.NOTSET)
