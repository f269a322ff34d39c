"""The log of a job: lines that coordinators write, and lines of its workers that they store.

A line is written by the transaction that does what the line says, so `headrace job logs` shows what
happened and nothing else. Coordinators write under two sources, each guarded by a lock of its own,
so that no two transactions take the same line number: `coordinator` belongs to the transaction that
changed the job's row, and `coordinator/TASK` to the one that changed the task's row.
"""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import Mapping, Sequence

from sqlalchemy import Connection
from sqlalchemy.exc import OperationalError

from headrace.model.jobs.epoch import EpochKind
from headrace.model.jobs.spec import JobSpec
from headrace.model.jobs.status import JobStatus
from headrace.model.task import TaskKind
from headrace.model.text import utc, without_nul
from headrace.protocol.messages import LINE_CHARS_MAX, LogLine, SettleResult
from headrace.store.jobs import job_logs
from headrace.store.jobs.job_logs import LOG_LINES_KEPT, Line
from headrace.store.jobs.jobs import Job
from headrace.store.tasks.tasks import Task

log = logging.getLogger(__name__)

COORDINATOR = "coordinator"
TRIM_AFTER_LINES = LOG_LINES_KEPT // 5  # of one job, stored since it was last trimmed
JOBS_COUNTED_MAX = 10_000  # in memory; the oldest count is dropped, and begins again


def note(
    conn: Connection,
    job_id: str,
    text: str,
    *,
    now_ms: int,
    level: str = "INFO",
    task: str | None = None,
) -> None:
    """Write a line. The caller has changed the job's row; with `task`, that of its task."""
    source = f"{COORDINATOR}/{task}" if task else COORDINATOR
    text = without_nul(text)[:LINE_CHARS_MAX]
    line = Line(source, 0, now_ms, level, text)
    job_logs.note(conn, job_id, line, task_id=task)


def note_submitted(
    conn: Connection, job_id: str, spec: JobSpec, *, group: str, now_ms: int
) -> None:
    size = f"{len(spec.pipelines)} pipeline{'' if len(spec.pipelines) == 1 else 's'}"
    note(conn, job_id, f"submitted: {spec.name!r}, {size}, group {group!r}", now_ms=now_ms)


def note_restored(conn: Connection, job_id: str, changes: Sequence[str], *, now_ms: int) -> None:
    """`changes`: what is new in the job file."""
    note(conn, job_id, "; ".join(["restored, and goes on", *changes]), now_ms=now_ms)


def note_moved(
    conn: Connection, job: Job, target: JobStatus, error: str | None, *, now_ms: int
) -> None:
    level = "ERROR" if target in {JobStatus.FAILING, JobStatus.FAILED} else "INFO"
    because = f": {error}" if error else ""
    text = f"job moved from {job.status} to {target}{because}"
    note(conn, job.id, text, now_ms=now_ms, level=level)


def note_given(conn: Connection, task: Task, *, now_ms: int) -> None:
    text = f"attempt {task.attempt} is given to worker {task.worker_id}"
    _note_task(conn, task, text, now_ms=now_ms)


def note_failed(conn: Connection, task: Task, error: str, *, now_ms: int) -> None:
    """An attempt failed, and it was the last one."""
    text = f"attempt {task.attempt} failed, and is not tried again: {error}"
    _note_task(conn, task, text, now_ms=now_ms, level="ERROR")


def note_retried(
    conn: Connection, task: Task, error: str, following: str, *, now_ms: int, pause_ms: int
) -> None:
    """An attempt failed, and there is a next one: `following` says which, and where it begins."""
    when = f" in {pause_ms / 1000:g} s, at {utc(now_ms + pause_ms)}" if pause_ms else ""
    text = f"attempt {task.attempt} failed, and is tried again{when} ({following}): {error}"
    _note_task(conn, task, text, now_ms=now_ms, level="WARNING")


def note_done(conn: Connection, task: Task, kind: EpochKind, *, now_ms: int) -> None:
    how = "with a savepoint" if kind is EpochKind.SAVEPOINT else "everything is read and committed"
    _note_task(conn, task, f"done, {how}", now_ms=now_ms)


def note_settled(conn: Connection, task: Task, settled: SettleResult, *, now_ms: int) -> None:
    """A settle task ended: what became of the epochs that an execution left open."""
    completed = [f"epoch {done.epoch} is completed" for done in settled.completed]
    aborted = [f"epoch {epoch} is aborted" for epoch in settled.aborted]
    text = ", ".join(completed + aborted) or "nothing was open"
    _note_task(conn, task, text, now_ms=now_ms)


def _note_task(
    conn: Connection, task: Task, text: str, *, now_ms: int, level: str = "INFO"
) -> None:
    if task.job_id is not None:
        line = f"{_task_title(task)}: {text}"
        note(conn, task.job_id, line, now_ms=now_ms, level=level, task=task.id)


def _task_title(task: Task) -> str:
    what = f"pipeline {task.pipeline}"
    return f"settling {what}" if task.kind is TaskKind.SETTLE else what


class JobLogWriter:
    """Stores log lines of workers. Used by one thread, for one leader term."""

    def __init__(self) -> None:
        self._since_trim: OrderedDict[str, int] = OrderedDict()  # lines, by incarnation

    def take(
        self,
        conn: Connection,
        received: Mapping[str, Sequence[LogLine]],
        *,
        now_ms: int,
        apart: bool = False,
    ) -> Mapping[str, int]:
        """Store the lines of each worker; returns, by worker, the highest number it may forget.

        Call it first in its transaction: a cleanup, too, locks the job first (avoids deadlock).
        `apart`: something can't be stored. If it is a line, its worker must forget it all the same.
        """
        by_worker = {worker: lines for worker, lines in received.items() if lines}
        if not by_worker:
            return {}
        if apart:
            self._keep_apart(conn, by_worker, now_ms=now_ms)
        else:
            self._keep(conn, by_worker, now_ms=now_ms)
        return {worker: max(line.number for line in lines) for worker, lines in by_worker.items()}

    def _keep_apart(
        self, conn: Connection, by_worker: Mapping[str, Sequence[LogLine]], *, now_ms: int
    ) -> None:
        try:
            with conn.begin_nested():
                self._keep(conn, by_worker, now_ms=now_ms)
        except OperationalError:
            raise  # the store is unavailable, and no line is to blame
        except Exception:
            log.exception("log lines can't be kept", extra={"workers": sorted(by_worker)})

    def _keep(
        self, conn: Connection, by_worker: Mapping[str, Sequence[LogLine]], *, now_ms: int
    ) -> None:
        lines: dict[tuple[str, str], list[Line]] = {}
        for worker, worker_lines in by_worker.items():
            for each in worker_lines:
                text = each.text[:LINE_CHARS_MAX]
                line = Line(worker, each.number, each.at_ms, each.level, text)
                lines.setdefault((each.incarnation, worker), []).append(line)
        for incarnation in job_logs.add(conn, lines, now_ms=now_ms):
            new = sum(len(added) for (of, _), added in lines.items() if of == incarnation)
            self._count(conn, incarnation, new)

    def _count(self, conn: Connection, incarnation: str, new: int) -> None:
        """Trim a job's log now and then: to check at each line would cost as much as the line."""
        count = self._since_trim.pop(incarnation, 0) + new
        if count >= TRIM_AFTER_LINES:
            job_logs.trim(conn, incarnation)
        else:
            self._since_trim[incarnation] = count
        if len(self._since_trim) > JOBS_COUNTED_MAX:
            self._since_trim.popitem(last=False)
