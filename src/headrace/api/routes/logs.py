"""/v1/jobs/ID/logs: what was said about a job. Any coordinator answers.

Lines are there until they expire, also when the state of the job is gone. An id may have been
another job's since: that one's incarnation, as history has it, is taken in place of the id.

A cursor says, for each source, up to where its lines were given out: a worker that was cut off
may say something old much later, and a reader who follows must not miss it.
"""

from __future__ import annotations

import base64
import binascii
from typing import Annotated

from fastapi import APIRouter, Query
from pydantic import BaseModel, Field, ValidationError
from sqlalchemy import Connection

from headrace.api.routes.jobs import Served
from headrace.coordinator.known import Known, known_job, now_of
from headrace.coordinator.service import Coordinator
from headrace.errors import LogsGone, NotFound, Refused
from headrace.model.job import JOB_ENDED
from headrace.model.text import Text, utc
from headrace.protocol.messages import COUNT_MAX
from headrace.store import history, job_logs
from headrace.store.engine import reading
from headrace.store.job_logs import LOG_LINES_KEPT
from headrace.store.jobs import Job
from headrace.views import LogLineView, LogList

CURSOR_CHARS_MAX = 40_000  # of some hundred sources; a request line has a limit, too
LINES_AT_ONCE = 1000  # in an answer, when nobody says how many

router = APIRouter(prefix="/v1/jobs", tags=["jobs"])

Tail = Annotated[int, Query(ge=0, le=LOG_LINES_KEPT)]
After = Annotated[str | None, Query(max_length=CURSOR_CHARS_MAX)]


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


@router.get("/{job_id}/logs")
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
        job = _found(conn, job_id)  # before its lines: of one that has ended, all are there
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


def _found(conn: Connection, key: str) -> Known:
    """The job of this id; or else of this incarnation, if history has it."""
    try:
        return known_job(conn, key)
    except NotFound:
        past = history.latest_run(conn, key)
        if past is None:
            raise
        return now_of(conn, past)
