"""What coordinators say about a job, and what they take down of its workers' words.

A line is written by the transaction that does what it tells of, so `headrace job logs` shows
what happened and nothing else. Two sources speak here, each under a lock of its own, or two
transactions would want the same number: `coordinator` by whoever has changed the job's row, and
`coordinator/TASK` by whoever has changed the task's.
"""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import Mapping, Sequence

from sqlalchemy import Connection
from sqlalchemy.exc import OperationalError

from headrace.model.epoch import EpochKind
from headrace.model.job import JobStatus
from headrace.model.jobspec import JobSpec
from headrace.model.task import Claim, TaskKind
from headrace.model.text import utc, without_nul
from headrace.protocol.messages import LINE_CHARS_MAX, LogLine
from headrace.protocol.payloads import Settled
from headrace.store import job_logs
from headrace.store.job_logs import LOG_LINES_KEPT, Line
from headrace.store.jobs import Job
from headrace.store.tasks import Task

log = logging.getLogger(__name__)

COORDINATOR = "coordinator"
TRIM_AFTER_LINES = LOG_LINES_KEPT // 5  # of a job, taken since it was last trimmed
JOBS_COUNTED_MAX = 10_000  # of the oldest, the count begins anew


def note(
    conn: Connection,
    job_id: str,
    text: str,
    *,
    now_ms: int,
    level: str = "INFO",
    task: str | None = None,
) -> None:
    """Say it of a job. The caller has changed the job's row; with `task`, that of its task."""
    source = f"{COORDINATOR}/{task}" if task else COORDINATOR
    text = without_nul(text)[:LINE_CHARS_MAX]
    said = Line(source, 0, now_ms, level, text)
    job_logs.note(conn, job_id, said, task_id=task)


def note_submitted(
    conn: Connection, job_id: str, spec: JobSpec, *, group: str, now_ms: int
) -> None:
    size = f"{len(spec.pipelines)} pipeline{'' if len(spec.pipelines) == 1 else 's'}"
    note(conn, job_id, f"submitted: {spec.name!r}, {size}, group {group!r}", now_ms=now_ms)


def note_restored(conn: Connection, job_id: str, news: Sequence[str], *, now_ms: int) -> None:
    """`news`: what is new in the job file."""
    note(conn, job_id, "; ".join(["restored, and goes on", *news]), now_ms=now_ms)


def note_moved(
    conn: Connection, job: Job, target: JobStatus, error: str | None, *, now_ms: int
) -> None:
    level = "ERROR" if target in {JobStatus.FAILING, JobStatus.FAILED} else "INFO"
    because = f": {error}" if error else ""
    text = f"job moved from {job.status} to {target}{because}"
    note(conn, job.id, text, now_ms=now_ms, level=level)


def note_given(conn: Connection, task: Task, claim: Claim, worker: str, *, now_ms: int) -> None:
    text = f"attempt {claim.attempt} is given to worker {worker}"
    _note_task(conn, task, text, now_ms=now_ms)


def note_failed(conn: Connection, task: Task, error: str, *, now_ms: int) -> None:
    """An attempt failed, and there is no other one."""
    text = f"attempt {task.attempt} failed, and is not tried again: {error}"
    _note_task(conn, task, text, now_ms=now_ms, level="ERROR")


def note_retried(
    conn: Connection, task: Task, error: str, following: str, *, now_ms: int, pause_ms: int
) -> None:
    """An attempt failed. `following`: which one of how many comes next, and where it begins."""
    when = f" in {pause_ms / 1000:g} s, at {utc(now_ms + pause_ms)}" if pause_ms else ""
    text = f"attempt {task.attempt} failed, and is tried again{when} ({following}): {error}"
    _note_task(conn, task, text, now_ms=now_ms, level="WARNING")


def note_done(conn: Connection, task: Task, kind: EpochKind, *, now_ms: int) -> None:
    how = "with a savepoint" if kind is EpochKind.SAVEPOINT else "everything is read and committed"
    _note_task(conn, task, f"done, {how}", now_ms=now_ms)


def note_settled(conn: Connection, task: Task, settled: Settled, *, now_ms: int) -> None:
    """What became of the epochs that an ended execution left open."""
    completed = [f"epoch {done.epoch} is completed" for done in settled.completed]
    aborted = [f"epoch {epoch} is aborted" for epoch in settled.aborted]
    text = ", ".join(completed + aborted) or "nothing was open"
    _note_task(conn, task, text, now_ms=now_ms)


def _note_task(
    conn: Connection, task: Task, text: str, *, now_ms: int, level: str = "INFO"
) -> None:
    if task.job_id is not None:
        said = f"{_named(task)}: {text}"
        note(conn, task.job_id, said, now_ms=now_ms, level=level, task=task.id)


def _named(task: Task) -> str:
    what = f"pipeline {task.pipeline}"
    return f"settling {what}" if task.kind is TaskKind.SETTLE else what


class Lines:
    """Takes down what workers said. Used by one thread, for one term."""

    def __init__(self) -> None:
        self._since_trim: OrderedDict[str, int] = OrderedDict()  # lines, by incarnation

    def take(
        self,
        conn: Connection,
        said: Mapping[str, Sequence[LogLine]],
        *,
        now_ms: int,
        apart: bool = False,
    ) -> Mapping[str, int]:
        """Keep what each worker said; by worker, the highest number that it may forget.

        It comes before anything else of its transaction: a cleaner, too, locks the job first.
        `apart`: something in it can't be recorded. If it is a line, its worker must get rid of it.
        """
        spoken = {worker: lines for worker, lines in said.items() if lines}
        if not spoken:
            return {}
        if apart:
            self._keep_apart(conn, spoken, now_ms=now_ms)
        else:
            self._keep(conn, spoken, now_ms=now_ms)
        return {worker: max(line.number for line in lines) for worker, lines in spoken.items()}

    def _keep_apart(
        self, conn: Connection, spoken: Mapping[str, Sequence[LogLine]], *, now_ms: int
    ) -> None:
        try:
            with conn.begin_nested():
                self._keep(conn, spoken, now_ms=now_ms)
        except OperationalError:
            raise  # the store is away, and no line is to blame
        except Exception:
            log.exception("log lines can't be kept", extra={"workers": sorted(spoken)})

    def _keep(
        self, conn: Connection, spoken: Mapping[str, Sequence[LogLine]], *, now_ms: int
    ) -> None:
        lines: dict[tuple[str, str], list[Line]] = {}
        for worker, said in spoken.items():
            for each in said:
                text = each.text[:LINE_CHARS_MAX]
                line = Line(worker, each.number, each.at_ms, each.level, text)
                lines.setdefault((each.incarnation, worker), []).append(line)
        for incarnation in job_logs.add(conn, lines, now_ms=now_ms):
            new = sum(len(of) for (about, _), of in lines.items() if about == incarnation)
            self._count(conn, incarnation, new)

    def _count(self, conn: Connection, incarnation: str, new: int) -> None:
        """Now and then is enough: a look at each line would cost as much as the line."""
        count = self._since_trim.pop(incarnation, 0) + new
        if count >= TRIM_AFTER_LINES:
            job_logs.trim(conn, incarnation)
        else:
            self._since_trim[incarnation] = count
        if len(self._since_trim) > JOBS_COUNTED_MAX:
            self._since_trim.popitem(last=False)
