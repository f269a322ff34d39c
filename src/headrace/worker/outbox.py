"""The outbox: reports and job-log lines, kept until a coordinator has acknowledged them (D4).

Reports are kept until a leader has acknowledged them, whoever leads by then. The end of a task is
also kept on disk: if a worker died before its report was delivered, others would repeat finished
work. The next worker with the same home reports the end instead. Reports within an execution die
with it, and need no file; nor does that of a task that was given back, of which nothing was begun.

`JobLog` keeps what is logged about a job on this worker. A log record belongs to a job when it is
made in a thread that works for one of its executions, or when it names the execution. Lines travel
with syncs that are sent anyway. They are for people: when no coordinator takes them for long, the
oldest are dropped, and one line says how many.
"""

from __future__ import annotations

import itertools
import logging
import os
import shutil
import threading
from collections import OrderedDict, deque
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path
from threading import Lock

from pydantic import JsonValue, ValidationError

from headrace.clock import Clock
from headrace.errors import ClaimLost, CoordinatorUnavailable
from headrace.logs import REDACTED, facts_of
from headrace.model.task import Claim
from headrace.model.text import without_nul
from headrace.protocol.messages import (
    LINE_CHARS_MAX,
    LINES_PER_SYNC_MAX,
    REPORT_BYTES_PER_SYNC_MAX,
    Acknowledged,
    Assignment,
    End,
    LogLine,
    Report,
    TaskEnded,
    TaskGivenBack,
)
from headrace.seams import seam
from headrace.worker.scratch import exclusive_access, try_lock_folder

log = logging.getLogger(__name__)

LINES_BUFFERED_MAX = 2000  # of all jobs together
ENDED_REMEMBERED_MAX = 100  # executions that may still log something after their end
SECRET_CHARS_MIN = 4  # a shorter value is no secret, and may be part of any word
# The execution that this thread works for.
CURRENT_EXECUTION: ContextVar[str] = ContextVar("headrace_execution", default="")
ACKNOWLEDGE_TIMEOUT_S = 6 * 3600.0  # how long all coordinators may be away
STOP_CHECK_INTERVAL_S = 0.2  # between two checks of the stop flag, while waiting
ENDS_REMEMBERED_MAX = 1000  # executions whose end can be reported again after it was acknowledged


class Posted:
    """A report that is on its way. `wait` blocks its execution until it is acknowledged."""

    def __init__(self, report: Report) -> None:
        self.report = report
        self.size_bytes = len(report.model_dump_json().encode())
        self.kept = True  # on disk, if it has to be there
        self._answer: Acknowledged | None = None
        self._answered = threading.Event()

    def resolve(self, answer: Acknowledged) -> None:
        self._answer = answer
        self._answered.set()

    def wait(self, check: Callable[[], None]) -> Acknowledged:
        """`check` raises when the execution is to stop. Raises ClaimLost when the task belongs to
        another execution by now."""
        for _ in range(int(ACKNOWLEDGE_TIMEOUT_S / STOP_CHECK_INTERVAL_S)):
            if self._answered.wait(STOP_CHECK_INTERVAL_S):
                break
            check()
        if self._answer is None:
            raise CoordinatorUnavailable("no coordinator acknowledged a report for hours")
        if not self._answer.held:
            raise ClaimLost(self.report.claim.task, self.report.claim.attempt)
        return self._answer


class Outbox:
    """The reports of this process that no leader has acknowledged yet; ends are also on disk."""

    def __init__(self, folder: Path, *, posted: Callable[[], None]) -> None:
        """`folder` belongs to this process, and lies beside those of other processes of the home;
        reports that dead processes left are taken over. `posted` is called after each post."""
        self._folder, self._wake = folder, posted
        self._lock = threading.Lock()
        self._pending: dict[int, Posted] = {}
        self._ends: OrderedDict[Claim, End] = OrderedDict()
        self._seq = 0
        folder.parent.mkdir(parents=True, exist_ok=True)
        with exclusive_access(folder.parent):
            folder.mkdir(exist_ok=True)
            self._lock_file = try_lock_folder(folder)
            assert self._lock_file is not None, "the folder is named after this process"
            for other in sorted(folder.parent.iterdir()):
                if other != folder and other.is_dir():
                    self._take_over(other)

    def post(self, make: Callable[[int], Report]) -> Posted:
        """Take a report, which `make` makes with its sequence number. The end of a task is durable
        on return, unless the disk refuses it."""
        with self._lock:
            self._seq += 1
            posted = Posted(make(self._seq))
            self._pending[self._seq] = posted
            if isinstance(posted.report, TaskEnded):
                seam("before end is kept")
                posted.kept = self._keep(posted.report)
                self._remember(posted.report)
                seam("end kept")
            elif isinstance(posted.report, TaskGivenBack):
                self._remember(posted.report)
        self._wake()
        return posted

    def _remember(self, end: End) -> None:
        self._ends[end.claim] = end
        while len(self._ends) > ENDS_REMEMBERED_MAX:
            self._ends.popitem(last=False)

    def report_end_again(self, claim: Claim) -> None:
        """Report an end that a leader acknowledged, and the present one does not know of (D2)."""
        if claim in self.unacknowledged_ends():
            return  # it is sent with every sync until it is acknowledged
        with self._lock:
            end = self._ends.get(claim)
        if end is None:  # it was stopped without a report
            error = "it was stopped when its leader did not know this worker any more"
            end = TaskEnded(seq=0, claim=claim, outcome="CANCELED", error=error)
        self.post(lambda seq: end.model_copy(update={"seq": seq}))

    def _keep(self, end: TaskEnded) -> bool:
        """Write an end to disk. If the disk refuses it, the end is still reported from memory."""
        try:
            _write(self._file(end.seq), end.model_dump_json())
        except OSError:
            log.exception("end not kept on disk", extra={"execution": end.claim.execution})
            return False
        return True

    def _take_over(self, folder: Path) -> None:
        """Post the ends that a dead process did not deliver. Its files go once ours are durable."""
        lock_file = try_lock_folder(folder)
        if lock_file is None:
            return
        taken: list[Posted] = []
        for file in sorted(folder.glob("*.json")):
            try:
                end = TaskEnded.model_validate_json(file.read_bytes())
            except ValidationError:
                log.warning("report left behind can't be read", extra={"file": str(file)})
            else:
                made = self.post(lambda seq, end=end: end.model_copy(update={"seq": seq}))
                taken.append(made)
        seam("ends taken over")
        if all(posted.kept for posted in taken):
            shutil.rmtree(folder)
        os.close(lock_file)

    def pending(self, most: int) -> Sequence[Report]:
        """The oldest unacknowledged reports, no more than a coordinator accepts in one sync."""
        with self._lock:
            oldest = list(self._pending.values())[:most]
        sizes = itertools.accumulate(posted.size_bytes for posted in oldest)
        fitting = sum(size <= REPORT_BYTES_PER_SYNC_MAX for size in sizes)
        return [posted.report for posted in oldest[: max(1, fitting)]]

    def unacknowledged_ends(self) -> Sequence[Claim]:
        """Executions whose end no leader has acknowledged."""
        with self._lock:
            reports = [posted.report for posted in self._pending.values()]
        return [report.claim for report in reports if isinstance(report, End)]

    def acknowledge(self, answers: Sequence[Acknowledged]) -> None:
        for answer in answers:
            with self._lock:
                posted = self._pending.pop(answer.seq, None)
            if posted is None:
                continue
            if isinstance(posted.report, TaskEnded):
                self._file(answer.seq).unlink(missing_ok=True)
            posted.resolve(answer)

    def close(self) -> None:
        """Release the folder, and delete it unless ends in it are still to be reported."""
        if self._lock_file is not None:
            with exclusive_access(self._folder.parent), self._lock:
                if not any(isinstance(p.report, TaskEnded) for p in self._pending.values()):
                    shutil.rmtree(self._folder)
                os.close(self._lock_file)
                self._lock_file = None

    def _file(self, seq: int) -> Path:
        return self._folder / f"{seq}.json"


def _write(path: Path, text: str) -> None:
    """Write a file durably and atomically: temporary file, fsync, rename, fsync of the folder."""
    temporary = path.with_suffix(".tmp")
    with temporary.open("w") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


@dataclass(frozen=True, slots=True)
class _Topic:
    """The job that an execution works for, and what must not appear in its log."""

    incarnation: str
    secrets: Sequence[str]


@dataclass(slots=True)
class _LostLines:
    """The dropped lines of a job: their number, and the last one, whose place the notice takes."""

    last: LogLine
    count: int = 0


class JobLog(logging.Handler):
    """The log handler of a worker process: numbers the lines of jobs and keeps them until sent."""

    def __init__(self, clock: Clock) -> None:
        super().__init__(logging.INFO)
        self._clock = clock
        self._guard = Lock()
        self._topics: dict[str, _Topic] = {}  # by execution, the oldest first
        self._lines: deque[LogLine] = deque()
        self._lost: dict[str, _LostLines] = {}  # by incarnation
        self._number = 0

    @contextmanager
    def listening(self) -> Generator[None]:
        """Receive every record of headrace from INFO on, even if the process logs fewer."""
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
        """From now on, records of this execution belong to its job."""
        incarnation = assignment.payload.get("incarnation")
        if not isinstance(incarnation, str):
            return  # the task belongs to no job
        topic = _Topic(incarnation, secrets_of(assignment.payload))
        with self._guard:
            self._topics[assignment.claim.execution] = topic

    def end(self, active: Sequence[str]) -> None:
        """Forget the jobs of ended executions, except the last `ENDED_REMEMBERED_MAX` of them."""
        with self._guard:
            ended = [execution for execution in self._topics if execution not in active]
            for execution in ended[: max(0, len(ended) - ENDED_REMEMBERED_MAX)]:
                del self._topics[execution]

    def emit(self, record: logging.LogRecord) -> None:
        try:
            self._take(record)
        except Exception:  # noqa: BLE001  as in every handler: logging must not fail its caller
            self.handleError(record)

    def _take(self, record: logging.LogRecord) -> None:
        execution = getattr(record, "execution", None) or CURRENT_EXECUTION.get()
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
                    text=_line_text(record, topic.secrets),
                )
            )
            while len(self._lines) > LINES_BUFFERED_MAX:
                self._drop(self._lines.popleft())

    def _drop(self, line: LogLine) -> None:
        lost = self._lost.setdefault(line.incarnation, _LostLines(line))
        lost.last, lost.count = line, lost.count + 1

    def pending(self) -> Sequence[LogLine]:
        """The oldest lines that no coordinator has acknowledged."""
        with self._guard:
            dropped = sorted((_lost_line(lost) for lost in self._lost.values()), key=_number)
            kept = list(self._lines)[:LINES_PER_SYNC_MAX]
        return [*dropped, *kept][:LINES_PER_SYNC_MAX]

    def acknowledge(self, number: int) -> None:
        """Drop the lines up to this number: a coordinator holds them."""
        with self._guard:
            while self._lines and self._lines[0].number <= number:
                self._lines.popleft()
            self._lost = {of: lost for of, lost in self._lost.items() if lost.last.number > number}


def _number(line: LogLine) -> int:
    return line.number


def _lost_line(lost: _LostLines) -> LogLine:
    text = f"{lost.count} lines are lost: no coordinator took them in time"
    return lost.last.model_copy(update={"level": "WARNING", "text": text})


def _line_text(record: logging.LogRecord, secrets: Sequence[str]) -> str:
    """Message and facts in one line, without the frames of tracebacks and Java stack traces."""
    facts = facts_of(record)
    if record.exc_info and record.exc_info[1] is not None and not hasattr(record, "reason"):
        error = record.exc_info[1]
        facts = f"{facts} error={type(error).__name__}: {error}".strip()
    text = redacted(f"{record.getMessage()}  {facts}" if facts else record.getMessage(), secrets)
    lines = [line.strip() for line in text.splitlines()]
    kept = " ".join(line for line in lines if line and not line.startswith(("at ", "... ")))
    # A file name may hold characters that no message can carry.
    return without_nul(kept).encode(errors="replace").decode()[:LINE_CHARS_MAX]


def redacted(text: str, secrets: Sequence[str]) -> str:
    """Replace secrets in a text: the error of a library may repeat the options it was given."""
    for secret in secrets:
        text = text.replace(secret, REDACTED)
    return text


def secrets_of(payload: dict[str, JsonValue]) -> Sequence[str]:
    """The secret values of a task, the longest first."""
    secrets: set[str] = set()
    left: list[JsonValue] = [payload.get("secrets")]
    while left:  # it ends: JSON from a message is a tree
        value = left.pop()
        if isinstance(value, dict):
            left += value.values()
        elif isinstance(value, list):
            left += value
        elif isinstance(value, str) and len(value) >= SECRET_CHARS_MIN:
            secrets.add(value)
    return sorted(secrets, key=len, reverse=True)
