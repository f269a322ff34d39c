"""/v1/jobs with their logs, /v1/history, /v1/ids: submit, restore, show, stop and settle jobs.

Any coordinator answers; the leader acts. The list under /v1/jobs has the jobs that have not ended,
and no other (C7); those that have are under /v1/history, and no job is in both. A job that is asked
for by its id is also shown once it has ended, and from history when its state is gone.

Log lines are kept until they expire, also when the state of the job is gone. The id may belong to
another job by then: the incarnation, as history shows it, is accepted in place of the id. A cursor
says, for each source, up to where its lines were given out: a worker that was cut off may report an
old line much later, and a reader who follows must not miss it.

/v1/ids completes the prefix of an id. Every other route takes a whole id only: a program that uses
a short one must not reach another job than it means because its own is gone. So it is left to a
person's command to complete the id, and to say which one it found.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Sequence
from typing import Annotated

from fastapi import APIRouter, Depends, Query, Request
from pydantic import BaseModel, Field, ValidationError
from sqlalchemy import Connection

from headrace.api.errors import (
    Body,
)
from headrace.api.job_views import (
    STORE_IS_OLDER,
    checkpoint_view,
    ended_view,
    spec_or_none,
    view_of,
)
from headrace.client.client import HISTORY_SHOWN
from headrace.client.views import (
    CheckpointList,
    HistoryList,
    IdList,
    JobList,
    JobView,
    LogLineView,
    LogList,
    SavepointDeleted,
)
from headrace.coordinator.jobs.job_end import KnownJob, current_job, known_job
from headrace.coordinator.service import Coordinator
from headrace.errors import (
    ID_PREFIX_MIN,
    LogsGone,
    NotFound,
    Refused,
)
from headrace.model.jobs.epoch import MINUTE_MS, Retention
from headrace.model.jobs.spec import JobSpec
from headrace.model.jobs.status import JOB_ENDED, JobStatus
from headrace.model.text import Text, utc
from headrace.protocol.messages import COUNT_MAX
from headrace.store.core.engine import reading
from headrace.store.jobs import epochs, history, job_logs, jobs, savepoints
from headrace.store.jobs.history import EndedRun
from headrace.store.jobs.job_logs import LOG_LINES_KEPT
from headrace.store.jobs.jobs import Job
from headrace.store.lookups import ID_DIGITS, IdKind, ids_with_prefix


class SubmitJob(Body):
    spec: JobSpec
    submission_key: Annotated[str, Field(min_length=1, max_length=200)]
    job_id: str | None = None
    group: str | None = None  # None: the default one, or the one that a restored job had
    restore: str | None = None  # id of an ended job, which goes on under this spec


LISTED_MAX = 1000  # jobs in one answer, newest first
CHECKPOINTS_LISTED_MAX = 1000  # in one answer, newest first
HISTORY_LISTED_MAX = 1000  # runs in one answer
IDS_LISTED_MAX = 10  # ids in one answer; more than one is ambiguous already
CURSOR_CHARS_MAX = 40_000  # enough for some hundred sources; a request line has a limit, too
LINES_AT_ONCE = 1000  # in an answer, by default
DEFAULT_GROUP = "default"

Tail = Annotated[int, Query(ge=0, le=LOG_LINES_KEPT)]
After = Annotated[str | None, Query(max_length=CURSOR_CHARS_MAX)]
Prefix = Annotated[str, Query(pattern=f"^[0-9a-f]{{{ID_PREFIX_MIN},{ID_DIGITS}}}$")]

router = APIRouter(prefix="/v1/jobs", tags=["jobs"])
logs_router = APIRouter(prefix="/v1/jobs", tags=["jobs"])
history_router = APIRouter(prefix="/v1/history", tags=["history"])
ids_router = APIRouter(prefix="/v1/ids", tags=["ids"])


async def coordinator_of(request: Request) -> Coordinator:
    """The coordinator of the application. Async, so that it takes no thread: /health must be
    answered while all threads wait for a store."""
    return request.app.state.coordinator


Served = Depends(coordinator_of)


def _view(coordinator: Coordinator, job: KnownJob, notes: Sequence[str] = ()) -> JobView:
    """The view of a job after a command about it, which is reconciled soon."""
    if isinstance(job, Job):
        coordinator.look_again()
    with reading(coordinator.engine) as conn:
        return view_of(conn, job, coordinator.options.retention, notes=notes)


@router.post("", status_code=201)
def submit(body: SubmitJob, coordinator: Coordinator = Served) -> JobView:
    if body.restore is not None:
        return _restore(body, body.restore, coordinator)
    job = coordinator.commands.submit(
        body.spec,
        submission_key=body.submission_key,
        job_id=body.job_id,
        group=_group_of(body) or DEFAULT_GROUP,
    )
    return _view(coordinator, job)


def _group_of(body: SubmitJob) -> str | None:
    """The group that was asked for, if any: by the request, or else by the job itself."""
    return body.group if body.group is not None else body.spec.group


def _restore(body: SubmitJob, job_id: str, coordinator: Coordinator) -> JobView:
    if body.job_id not in {None, job_id}:
        raise Refused(
            f"job {job_id!r} keeps its id when it is restored, and {body.job_id!r} was asked for; "
            "leave job_id out"
        )
    restored = coordinator.commands.restore(
        body.spec, job_id=job_id, submission_key=body.submission_key, group=_group_of(body)
    )
    return _view(coordinator, restored.job, restored.notes)


@router.get("")
def listed(coordinator: Coordinator = Served) -> JobList:
    retention = coordinator.options.retention
    with reading(coordinator.engine) as conn:
        rows = jobs.open_jobs(conn, most=LISTED_MAX)
        return JobList(jobs=tuple(view_of(conn, job, retention) for job in rows))


@router.get("/{job_id}")
def show(job_id: str, coordinator: Coordinator = Served) -> JobView:
    retention = coordinator.options.retention
    with reading(coordinator.engine) as conn:
        job = _job_or_way_out(conn, job_id, retention)
        spec = spec_or_none(conn, job_id) if isinstance(job, Job) else None
        view = view_of(conn, job, retention, spec=spec)
        if view.pipelines:
            return view
        # On PostgreSQL each statement has a snapshot of its own, and the state of the job was
        # deleted between two of them. Whoever waits for its end needs its row counts.
        return view_of(conn, history.latest(conn, job_id) or job, retention)


@router.get("/{job_id}/checkpoints")
def list_checkpoints(job_id: str, coordinator: Coordinator = Served) -> CheckpointList:
    with reading(coordinator.engine) as conn:
        job = _job_or_way_out(conn, job_id, coordinator.options.retention)
        if isinstance(job, EndedRun):
            raise NotFound(
                "checkpoint of job",
                job_id,
                way_out=f"it is {job.status}, and they were deleted with its state; "
                f"`headrace job show {job_id}` shows how it ended",
            )
        checkpoints = epochs.checkpoints_of(conn, job.incarnation, most=CHECKPOINTS_LISTED_MAX)
    return CheckpointList(checkpoints=tuple(map(checkpoint_view, checkpoints)))


@router.post("/{job_id}/savepoint")
def savepoint(job_id: str, coordinator: Coordinator = Served) -> JobView:
    return _view(coordinator, coordinator.commands.savepoint(job_id))


@router.delete("/{job_id}/savepoint")
def delete_savepoint(job_id: str, coordinator: Coordinator = Served) -> SavepointDeleted:
    coordinator.commands.delete_savepoint(job_id)
    return SavepointDeleted(id=job_id)


@router.post("/{job_id}/settle")
def settle(job_id: str, coordinator: Coordinator = Served) -> JobView:
    return _view(coordinator, coordinator.commands.settle(job_id))


@router.post("/{job_id}/cancel")
def cancel(job_id: str, coordinator: Coordinator = Served) -> JobView:
    return _view(coordinator, coordinator.commands.cancel(job_id))


def _job_or_way_out(conn: Connection, job_id: str, retention: Retention) -> KnownJob:
    """The job of this id. Raises NotFound, which says what to do instead."""
    try:
        return known_job(conn, job_id)
    except NotFound as error:
        raise NotFound("job", job_id, way_out=_way_out(conn, job_id, retention)) from error


def _way_out(conn: Connection, job_id: str, retention: Retention) -> str:
    if (saved := savepoints.get(conn, job_id)) is not None:
        restore = f"restore it with `headrace run JOB_FILE --restore {job_id}`, or"
        if saved.store_is_older:
            restore = f"a restore is refused as long as {STORE_IS_OLDER};"
        return (
            f"its history has expired, and its savepoint is still kept: {restore} delete it with "
            f"`headrace job savepoint delete {job_id}`"
        )
    minutes = retention.history_expire_ms // MINUTE_MS
    return (
        "`headrace job list` shows what runs, `headrace job history` what has ended, "
        f"for {minutes} minutes"
    )


class Cursor(BaseModel):
    incarnation: Text
    seen: dict[Text, Annotated[int, Field(ge=0, le=COUNT_MAX)]]

    @classmethod
    def read(cls, text: str) -> Cursor:
        try:
            return cls.model_validate_json(base64.urlsafe_b64decode(text.encode()))
        except (ValidationError, binascii.Error) as error:
            raise Refused(
                "`after` is not a cursor that was given out with log lines; leave it out to have "
                "them from the beginning"
            ) from error

    def text(self) -> str:
        return base64.urlsafe_b64encode(self.model_dump_json().encode()).decode()


@logs_router.get("/{job_id}/logs")
def logs(
    job_id: str,
    coordinator: Coordinator = Served,
    *,
    tail: Tail = LINES_AT_ONCE,
    after: After = None,
) -> LogList:
    """The last lines, or those that came after a cursor."""
    cursor = Cursor.read(after) if after is not None else None
    with reading(coordinator.engine) as conn:
        job = _job_of_logs(
            conn, job_id
        )  # read before its lines: if it has ended by then, all of them are there
        if cursor is not None and cursor.incarnation == job.incarnation:
            seen = cursor.seen
            lines, reached = job_logs.after(conn, job.incarnation, seen, most=LINES_AT_ONCE)
        else:  # also when another job has the id by now
            lines, reached = job_logs.last(conn, job.incarnation, most=tail)
    if not reached and not isinstance(job, Job):
        ended, failed = utc(job.ended_at_ms), job.error is not None
        raise LogsGone(job.id, job.status, ended, failed=failed)
    return LogList(
        job=job.id,
        status=job.status,
        ended=job.status in JOB_ENDED,
        lines=tuple(
            LogLineView(
                at_ms=line.at_ms,
                level=line.level,
                source=line.source,
                number=line.number,
                text=line.text,
            )
            for line in lines
        ),
        cursor=Cursor(incarnation=job.incarnation, seen=dict(reached)).text(),
    )


def _job_of_logs(conn: Connection, key: str) -> KnownJob:
    """The job with this id, or else with this incarnation, if history has it."""
    try:
        return known_job(conn, key)
    except NotFound:
        past = history.latest_run(conn, key)
        if past is None:
            raise
        return current_job(conn, past)


@history_router.get("", name="listed")
def list_history(
    coordinator: Coordinator = Served,
    *,
    job: Text | None = None,
    status: str | None = None,
    name: Text | None = None,
    most: Annotated[int, Query(ge=1, le=HISTORY_LISTED_MAX)] = HISTORY_SHOWN,
) -> HistoryList:
    """The latest first. Every restore of a job is a run of its own."""
    wanted = _ended_status(status)
    with reading(coordinator.engine) as conn:
        runs = history.listed(conn, most=most, job_id=job, status=wanted, name=name)
    return HistoryList(runs=tuple(map(ended_view, runs)))


def _ended_status(text: str | None) -> JobStatus | None:
    if text is None:
        return None
    if text.upper() not in JOB_ENDED:
        raise Refused(
            f"status {text!r} is not one that a job ends in; take {', '.join(sorted(JOB_ENDED))}. "
            "What has not ended is shown by `headrace job list`"
        )
    return JobStatus(text.upper())


@ids_router.get("", name="listed")
def list_ids(kind: IdKind, prefix: Prefix, coordinator: Coordinator = Served) -> IdList:
    with reading(coordinator.engine) as conn:
        return IdList(ids=tuple(ids_with_prefix(conn, kind, prefix, most=IDS_LISTED_MAX)))
