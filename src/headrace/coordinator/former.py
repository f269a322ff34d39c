"""A job that has ended, as a restore finds it: by its rows, or by its savepoint once they are gone.

Whoever cleans it up waits, or has done so: the record of the cleanup is locked before the job, in
the order in which a cleaner does.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pydantic import ValidationError
from sqlalchemy import Connection

from headrace.coordinator.payloads import unreadable
from headrace.errors import NotFound, Refused, StoreUnavailable
from headrace.model.epoch import EpochKind
from headrace.model.job import JOB_ENDED, JobStatus, PipelineStatus
from headrace.model.jobspec import JobSpec
from headrace.store import cleanups, epochs, history, jobs, restores, savepoints, tasks
from headrace.store.cleanups import Cleanup
from headrace.store.jobs import Job, Pipeline
from headrace.store.savepoints import Savepoint

_WHY_NONE = {
    JobStatus.FINISHED: ": all of it was read",
    JobStatus.CANCELED: ": a job that is canceled keeps none",
    JobStatus.FAILED: ": it failed before its first checkpoint was complete, or it has expired",
    JobStatus.SAVEPOINT_DONE: " any more: it was deleted, or has expired",
}
_ENDED_WITH = {
    EpochKind.SAVEPOINT: JobStatus.SAVEPOINT_DONE,
    EpochKind.CHECKPOINT: JobStatus.FAILED,
}

# Of what a savepoint keeps of a pipeline: not in its row, or of another type there.
NO_COLUMNS = frozenset({"status", "highest", "failure_cause"})


@dataclass(frozen=True, slots=True)
class Former:
    job: Job
    made: Savepoint
    spec: JobSpec
    pipelines: Sequence[Pipeline]
    highest: Mapping[int, int]  # by pipeline: the highest id it ever used; -1: none
    cleaned: bool  # its rows are gone

    @property
    def highest_of_any(self) -> int:
        return max(self.made.epoch, *self.highest.values())


def lock_former(conn: Connection, job_id: str) -> None:
    """From now on nobody else restores it, or cleans it up, until the transaction ends."""
    if (job := jobs.get(conn, job_id)) is not None:
        record = _lock_record(conn, job.incarnation)
        if (locked := restores.lock(conn, job_id)) is not None:
            if record is None and cleanups.get(conn, locked.incarnation) is not None:
                # It ended in between: a cleaner may have the record, and wait for the job.
                raise StoreUnavailable(f"job {job_id!r} ended at this moment; try again")
            return
    if (made := savepoints.lock(conn, job_id)) is not None:
        _lock_record(conn, made.incarnation)


def _lock_record(conn: Connection, incarnation: str) -> Cleanup | None:
    """Its task first, as a report about that does: two orders would be a deadlock."""
    found = cleanups.get(conn, incarnation)
    if found is not None and found.task_id is not None:
        tasks.lock(conn, [found.task_id])
    return cleanups.lock(conn, incarnation)


def find_former(conn: Connection, job_id: str) -> Former:
    """It is locked. Refused when it has not ended, or left nothing to go on with."""
    job = jobs.get(conn, job_id)
    if job is None:
        return _by_savepoint(conn, job_id)
    if job.status not in JOB_ENDED:
        raise Refused(
            f"job {job.id!r} is {job.status}: only a job that has ended can be restored; stop it "
            f"with `headrace job savepoint {job.id}` first"
        )
    made = savepoints.of(conn, job.incarnation)
    if made is None:
        raise _left_none(job.id, job.status)
    pipelines = jobs.pipelines_of(conn, job.id)
    return Former(
        job=job,
        made=made,
        spec=_spec(job_id, jobs.raw_spec(conn, job_id)),
        pipelines=pipelines,
        highest={p.number: epochs.highest(conn, job.incarnation, p.number) for p in pipelines},
        cleaned=False,
    )


def _by_savepoint(conn: Connection, job_id: str) -> Former:
    made = savepoints.get(conn, job_id)
    if made is None:
        if (ended := history.latest(conn, job_id)) is not None:
            raise _left_none(job_id, ended.status)
        raise NotFound("job", job_id)
    # A run that was cancelled before it began has left the savepoint as it was.
    last = history.latest_run(conn, made.incarnation)
    return Former(
        job=Job(
            id=job_id,
            incarnation=made.incarnation,
            name=made.name,
            group=made.group,
            status=_ENDED_WITH[made.kind],
            waits_for=None,
            error=None,
            wanted_cancel=False,
            wanted_savepoint=False,
            created_at_ms=made.made_at_ms,
            started_at_ms=None,
            ended_at_ms=made.made_at_ms,
            run=max(made.run, last.run if last else 0),
        ),
        made=made,
        spec=_spec(job_id, made.spec),
        pipelines=[_pipeline(job_id, facts) for facts in made.pipelines],
        highest={int(facts["number"]): int(facts["highest"]) for facts in made.pipelines},
        cleaned=True,
    )


def _pipeline(job_id: str, facts: Mapping[str, object]) -> Pipeline:
    known = {key: value for key, value in facts.items() if key not in NO_COLUMNS}
    status = PipelineStatus(str(facts["status"]))
    return Pipeline(job_id=job_id, status=status, task_id=None, **known)  # pyright: ignore[reportArgumentType]


def _spec(job_id: str, stored: Mapping[str, object]) -> JobSpec:
    try:
        return JobSpec.model_validate(stored, extra="ignore")
    except ValidationError as error:
        raise unreadable(job_id, error) from error


def _left_none(job_id: str, status: JobStatus) -> Refused:
    return Refused(
        f"job {job_id!r} is {status} and left no savepoint{_WHY_NONE[status]}; "
        "run the file anew without --restore"
    )
