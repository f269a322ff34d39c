"""What is said about a job on this worker, kept until a coordinator has taken it.

A record belongs to a job when it is made in a thread that works for one of its executions, or
names the execution. Lines ride on syncs that are made anyhow. They are for people: when nobody
takes them for long, the oldest are dropped, and one line says how many.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from threading import Lock

from pydantic import JsonValue

from headrace.clock import Clock
from headrace.logs import REDACTED, facts_of
from headrace.model.text import without_nul
from headrace.protocol.messages import (
    LINE_CHARS_MAX,
    LINES_PER_SYNC_MAX,
    Assignment,
    LogLine,
)

LINES_BUFFERED_MAX = 2000  # of all jobs
ENDED_REMEMBERED_MAX = 100  # executions of which something may be said after their end
SECRET_CHARS_MIN = 4  # a shorter one is no secret, and may stand in any word
SPEAKING: ContextVar[str] = ContextVar("headrace_execution", default="")  # whose thread this is


@dataclass(frozen=True, slots=True)
class _Topic:
    incarnation: str
    secrets: Sequence[str]


@dataclass(slots=True)
class _Lost:
    """Lines of a job that were dropped. Said in place of the last of them."""

    last: LogLine
    count: int = 0


class JobLog(logging.Handler):
    """One for each worker process, whose lines it counts."""

    def __init__(self, clock: Clock) -> None:
        super().__init__(logging.INFO)
        self._clock = clock
        self._guard = Lock()
        self._topics: dict[str, _Topic] = {}  # by execution, the oldest first
        self._lines: deque[LogLine] = deque()
        self._lost: dict[str, _Lost] = {}  # by incarnation
        self._number = 0

    @contextmanager
    def listening(self) -> Generator[None]:
        """Hear all of headrace, whatever less is written to the log of the process."""
        root = logging.getLogger("headrace")
        before = root.level
        root.addHandler(self)
        root.setLevel(min(root.getEffectiveLevel(), self.level))
        try:
            yield
        finally:
            root.setLevel(before)
            root.removeHandler(self)

    def begin(self, assignment: Assignment) -> None:
        """What is said of this execution is said of its job, from now on."""
        incarnation = assignment.payload.get("incarnation")
        if not isinstance(incarnation, str):
            return  # it belongs to no job
        topic = _Topic(incarnation, secrets_of(assignment.payload))
        with self._guard:
            self._topics[assignment.claim.execution] = topic

    def end(self, active: Sequence[str]) -> None:
        """Forget whose the executions were that have ended; the last of them stay for a while."""
        with self._guard:
            ended = [execution for execution in self._topics if execution not in active]
            for execution in ended[: max(0, len(ended) - ENDED_REMEMBERED_MAX)]:
                del self._topics[execution]

    def emit(self, record: logging.LogRecord) -> None:
        try:
            self._take(record)
        except Exception:  # noqa: BLE001  as every handler: what is logged must stop nobody
            self.handleError(record)

    def _take(self, record: logging.LogRecord) -> None:
        execution = getattr(record, "execution", None) or SPEAKING.get()
        with self._guard:
            topic = self._topics.get(str(execution))
            if topic is None:
                return
            self._number += 1
            self._lines.append(
                LogLine(
                    incarnation=topic.incarnation,
                    number=self._number,
                    at_ms=self._clock.wall_ms(),
                    level=record.levelname,
                    text=_said(record, topic.secrets),
                )
            )
            while len(self._lines) > LINES_BUFFERED_MAX:
                self._drop(self._lines.popleft())

    def _drop(self, line: LogLine) -> None:
        lost = self._lost.setdefault(line.incarnation, _Lost(line))
        lost.last, lost.count = line, lost.count + 1

    def pending(self) -> Sequence[LogLine]:
        """The oldest lines that nobody has taken."""
        with self._guard:
            told = sorted((_told(lost) for lost in self._lost.values()), key=_number)
            kept = list(self._lines)[:LINES_PER_SYNC_MAX]
        return [*told, *kept][:LINES_PER_SYNC_MAX]

    def acknowledge(self, number: int) -> None:
        """A coordinator holds all lines up to this one."""
        with self._guard:
            while self._lines and self._lines[0].number <= number:
                self._lines.popleft()
            self._lost = {of: lost for of, lost in self._lost.items() if lost.last.number > number}


def _number(line: LogLine) -> int:
    return line.number


def _told(lost: _Lost) -> LogLine:
    text = f"{lost.count} lines are lost: no coordinator took them in time"
    return lost.last.model_copy(update={"level": "WARNING", "text": text})


def _said(record: logging.LogRecord, secrets: Sequence[str]) -> str:
    """Message and facts in one line; of a traceback or a Java trace, what happened."""
    facts = facts_of(record)
    if record.exc_info and record.exc_info[1] is not None and not hasattr(record, "reason"):
        error = record.exc_info[1]
        facts = f"{facts} error={type(error).__name__}: {error}".strip()
    text = redacted(f"{record.getMessage()}  {facts}" if facts else record.getMessage(), secrets)
    lines = [line.strip() for line in text.splitlines()]
    told = " ".join(line for line in lines if line and not line.startswith(("at ", "... ")))
    # A name of a file may hold what no message can carry.
    return without_nul(told).encode(errors="replace").decode()[:LINE_CHARS_MAX]


def redacted(text: str, secrets: Sequence[str]) -> str:
    """An error of a library may repeat what it was given."""
    for secret in secrets:
        text = text.replace(secret, REDACTED)
    return text


def secrets_of(payload: dict[str, JsonValue]) -> Sequence[str]:
    """The values that a task was given and nobody else may read, the longest first."""
    found: set[str] = set()
    left: list[JsonValue] = [payload.get("secrets")]
    while left:  # ends: JSON that arrived in a message is a tree
        value = left.pop()
        if isinstance(value, dict):
            left += value.values()
        elif isinstance(value, list):
            left += value
        elif isinstance(value, str) and len(value) >= SECRET_CHARS_MIN:
            found.add(value)
    return sorted(found, key=len, reverse=True)
