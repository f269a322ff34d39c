"""What a user may ask for. A command writes what is *wanted*, on any node; the leader does it."""

from __future__ import annotations

import threading
from collections.abc import Collection

from sqlalchemy import Connection, Engine

from headrace.clock import Clock
from headrace.coordinator import joblog
from headrace.coordinator.known import Known, known_job, submitted_before
from headrace.coordinator.restoring import Restored, restore
from headrace.coordinator.schedule import check_room
from headrace.coordinator.secrets import without_secrets
from headrace.coordinator.settlement import want_settled
from headrace.errors import BadSetting, NotFound, Refused, Unavailable
from headrace.jobfile.check import check_spec
from headrace.jobfile.saving import opens
from headrace.model.ids import Ids
from headrace.model.job import JOB_ENDED, JobStatus
from headrace.model.jobspec import JobSpec
from headrace.model.names import check_name
from headrace.model.schedule import ScheduleStrategy
from headrace.model.text import utc
from headrace.seams import seam
from headrace.store import cleanups, history, jobs, savepoints, wake
from headrace.store.engine import reading
from headrace.store.history import Ended
from headrace.store.jobs import Job
from headrace.store.tx import in_tx

# How a job can have ended that was asked for a savepoint, without that being anybody's mistake.
SAVED = frozenset({JobStatus.SAVEPOINT_DONE, JobStatus.FINISHED})
_NOT_BEGUN = (
    "it has not begun, so there is nothing to save; wait until it is RUNNING, or cancel it with "
    "`headrace job cancel {job}`"
)
CAN_NOT_SAVE = {
    JobStatus.INITIALIZING: _NOT_BEGUN,
    JobStatus.CREATED: _NOT_BEGUN,
    JobStatus.PENDING: _NOT_BEGUN,
    JobStatus.CANCELING: "it is being canceled, which beats a savepoint",
    JobStatus.FAILING: (
        "it keeps its last checkpoint; once it is FAILED, `headrace job show {job}` says how to go "
        "on"
    ),
    JobStatus.FAILED: (
        "it has ended, and keeps its last checkpoint if it had one; `headrace job show {job}` says "
        "how to go on"
    ),
    JobStatus.SAVEPOINT_DONE: (
        "it has its savepoint; go on with `headrace run JOB_FILE --restore {job}`"
    ),
    JobStatus.CANCELED: "it has ended, and nothing of it is left to save; run its file anew",
    JobStatus.FINISHED: "it has ended, and all of it was read; there is nothing to save",
}


class _SaidBefore(Exception):
    """The submission key stands in history: nothing is inserted."""


class Commands:
    def __init__(
        self,
        engine: Engine,
        clock: Clock,
        ids: Ids,
        *,
        schedule: ScheduleStrategy = ScheduleStrategy.WAIT,
    ) -> None:
        self._engine, self._clock, self._ids = engine, clock, ids
        self._schedule = schedule
        self.stopping = threading.Event()

    def submit(
        self, spec: JobSpec, *, submission_key: str, job_id: str | None = None, group: str
    ) -> Known:
        """Accept a job. The same submission key gives the same job, in whatever state (C6)."""
        spec = _checked(spec, submission_key, job_id=job_id, group=group)
        chosen, incarnation = job_id or self._ids.new(), self._ids.new()

        def work(conn: Connection) -> Known:
            if not jobs.insert_job(
                conn,
                spec,
                job_id=chosen,
                incarnation=incarnation,
                submission_key=submission_key,
                group=group,
                now_ms=self._clock.wall_ms(),
                opening=_opening(spec),
            ):
                # Said before, or at this moment at another node; or its id is another's by now.
                if (known := submitted_before(conn, submission_key)) is not None:
                    return known
                raise _taken(conn, chosen)
            # After the insert: history is written before the rows of a job go, so that one of the
            # two always shows the key.
            if history.by_key(conn, submission_key) is not None:
                raise _SaidBefore
            self._check_room(conn, chosen, group, spec)
            joblog.note_submitted(conn, chosen, spec, group=group, now_ms=self._clock.wall_ms())
            wake.notify(conn)
            return known_job(conn, chosen)

        seam("before submit")
        try:
            accepted = in_tx(self._engine, work, stop=self.stopping)
        except _SaidBefore:  # which took the insert back
            accepted = self._said_before(submission_key)
        seam("submitted, before answer")
        return accepted

    def _check_room(self, conn: Connection, job_id: str, group: str, spec: JobSpec) -> None:
        """Refuse what would have to wait, if nobody may: it takes back all that was written."""
        if self._schedule is ScheduleStrategy.REJECT:
            check_room(conn, job_id, group, needed=len(spec.pipelines))

    def _said_before(self, submission_key: str) -> Known:
        with reading(self._engine) as conn:
            known = submitted_before(conn, submission_key)
        if known is None:  # its history expired between the two
            raise Unavailable("the coordinator was busy with that job; send the submission again")
        return known

    def restore(
        self, spec: JobSpec, *, job_id: str, submission_key: str, group: str | None = None
    ) -> Restored:
        """Have a job that has ended go on from where it was, under this file."""
        spec = _checked(spec, submission_key, job_id=job_id, group=group)

        def work(conn: Connection) -> Restored:
            restored = restore(
                conn,
                spec,
                job_id=job_id,
                submission_key=submission_key,
                group=group,
                now_ms=self._clock.wall_ms(),
            )
            if restored.begun:
                self._check_room(conn, job_id, restored.job.group, spec)
                joblog.note_restored(conn, job_id, restored.notes, now_ms=self._clock.wall_ms())
            wake.notify(conn)
            return restored

        seam("before restore")
        restored = in_tx(self._engine, work, stop=self.stopping)
        seam("restored, before answer")
        return restored

    def savepoint(self, job_id: str) -> Known:
        """Ask for the end of a job, so that it can be restored. Said twice it is said once."""

        def work(conn: Connection) -> Known:
            job = known_job(conn, job_id)
            asked = isinstance(job, Ended) or job.wanted_savepoint
            if not (asked and job.status in SAVED):
                _check_can_save(job_id, job)
                jobs.want_savepoint(conn, job_id)
                joblog.note(conn, job_id, "a savepoint is wanted", now_ms=self._clock.wall_ms())
                wake.notify(conn)
            return known_job(conn, job_id)

        return in_tx(self._engine, work, stop=self.stopping)

    def delete_savepoint(self, job_id: str) -> None:
        """Forget where a job that has ended could be restored. The job stays as it is."""

        def work(conn: Connection) -> None:
            if savepoints.delete_all(conn, job_id) == 0:
                known_job(conn, job_id)  # raises when there is no such job either
                raise NotFound("savepoint of job", job_id)

        in_tx(self._engine, work, stop=self.stopping)

    def settle(self, job_id: str) -> Known:
        """Have what a job that has ended left at its targets settled now, as far as it is safe."""

        def work(conn: Connection) -> Known:
            want_settled(conn, known_job(conn, job_id))
            wake.notify(conn)
            return known_job(conn, job_id)

        return in_tx(self._engine, work, stop=self.stopping)

    def cancel(self, job_id: str) -> Known:
        """Ask for the end of a job. One that has ended stays as it is."""

        def work(conn: Connection) -> Known:
            if jobs.want_cancel(conn, job_id):
                joblog.note(conn, job_id, "cancel is wanted", now_ms=self._clock.wall_ms())
                wake.notify(conn)
            return known_job(conn, job_id)

        return in_tx(self._engine, work, stop=self.stopping)


def _checked(
    spec: JobSpec, submission_key: str, *, job_id: str | None, group: str | None
) -> JobSpec:
    """The job without its secrets, if all that came with it can be used."""
    if "\0" in submission_key:
        raise BadSetting("a submission key can't hold a NUL character")
    for what, name in (("job id", job_id), ("group", group)):
        if name is not None:
            check_name(what, name)
    spec = without_secrets(spec)
    check_spec(spec)
    return spec


def _opening(spec: JobSpec) -> Collection[int]:
    """Pipelines of which a sink does something before the first row."""
    return [p.number for p in spec.pipelines if any(opens(sink.options) for sink in p.sinks)]


def _taken(conn: Connection, job_id: str) -> Refused:
    """Why a job can't be submitted under this id, and what to do instead."""
    job = jobs.get(conn, job_id)
    if job is None or job.status not in JOB_ENDED:
        return Refused(f"job id {job_id!r} is taken; submit under another id")
    cleanup = cleanups.get(conn, job.incarnation)
    until = f", due at {utc(cleanup.due_at_ms)}" if cleanup else ""
    failed = f"; its last try failed: {cleanup.error}" if cleanup and cleanup.error else ""
    made = savepoints.of(conn, job.incarnation)
    can_go_on = made is not None and not made.store_is_older
    restore = f"go on with it by --restore {job_id}, " if can_go_on else ""
    return Refused(
        f"job {job_id!r} is {job.status} and awaits its cleanup{until}{failed}; {restore}submit "
        "again after that, or under another id"
    )


def _check_can_save(job_id: str, job: Known) -> None:
    if isinstance(job, Job) and job.wanted_cancel and job.status not in JOB_ENDED:
        raise Refused(
            f"job {job_id!r} is {job.status} and is being canceled: that beats a savepoint; "
            "submit it again once it has ended"
        )
    if (way_out := CAN_NOT_SAVE.get(job.status)) is not None:
        raise Refused(f"job {job_id!r} is {job.status}: {way_out.format(job=job_id)}")
