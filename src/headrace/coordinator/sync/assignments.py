"""What an assignment carries, and a log of assignments that had to be sent again.

The payload is built at the moment it is sent, so that it says where things stand now. An assignment
that is sent again is counted each time, and logged once for each execution and term (D6).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Any

from sqlalchemy import Connection
from sqlalchemy.exc import DBAPIError

from headrace.coordinator.context import Metrics
from headrace.coordinator.jobs.attempts import TaskPlace, place_of
from headrace.coordinator.sync.reports import ready_of
from headrace.coordinator.tables.tasks import table_task
from headrace.errors import Refused
from headrace.logs import Once
from headrace.model.jobs.epoch import incarnation_of
from headrace.model.jobs.spec import JobSpec
from headrace.model.jobs.status import JOB_ENDED, JobStatus
from headrace.model.task import OF_TABLES, ForgetOrder, Location, SettleOrder, TaskKind
from headrace.protocol.messages import (
    Assignment,
    EpochPlan,
    ForgetPayload,
    OpenEpoch,
    PipelinePayload,
    Restore,
)
from headrace.store.jobs import cleanups, epochs, jobs, savepoints
from headrace.store.jobs.jobs import unreadable, why_unreadable
from headrace.store.tasks.tasks import Task

log = logging.getLogger(__name__)

# Only coordinators use it, and a worker of an older version would refuse an env that has it.
_NOT_FOR_WORKERS = {"env": {"lost_workers_max"}}
OWNERS_MAX = 10_000  # incarnations listed in a FORGET task; with more, it deletes no strays


def build_assignment(
    conn: Connection, task: Task, place: TaskPlace | None, *, now_ms: int
) -> Assignment:
    """Build the assignment of a task, as it is assigned, from what the store holds of it.

    Raises Refused when that can't be read, and no other try would read it; KeyRefused when the key
    of its secrets is not held here right now. `place` saves a read, if it was read for this answer.
    """
    try:
        payload = _payload(conn, task, place, now_ms=now_ms)
        return Assignment(claim=task.claim, kind=task.kind, lane=task.lane, payload=payload)
    except DBAPIError:
        raise  # the store is unavailable, and no row is to blame
    except Refused:
        raise
    except Exception as error:
        log.exception("task can't be read", extra={"task": task.id, "job": task.job_id})
        if task.kind in OF_TABLES:
            raise Refused(
                f"what the store holds of it can't be read: {why_unreadable(error)}"
            ) from error
        raise unreadable(task.job_id, error) from error


def _payload(
    conn: Connection, task: Task, place: TaskPlace | None, *, now_ms: int
) -> dict[str, Any]:
    build = _JOB_PAYLOADS.get(task.kind)
    if build is not None:
        return build(conn, task, place)
    service = table_task(task.kind)
    service.make_room(conn, task, now_ms)
    return service.payload(conn, task, now_ms=now_ms)


def _noop_payload(_conn: Connection, task: Task, _place: TaskPlace | None) -> dict[str, Any]:
    return dict(task.payload)


def _pipeline_payload(conn: Connection, task: Task, place: TaskPlace | None) -> dict[str, Any]:
    place = place or place_of(conn, task)
    kind = task.kind
    spec, secrets = jobs.spec_and_secrets_of(conn, place.job.id)
    if place.job.status in JOB_ENDED:  # it is only settled: its sinks' secrets will do
        _, secrets = cleanups.spec_and_secrets_of(conn, place.job.incarnation)
    open_epochs = epochs.all_open(conn, place.job.incarnation, place.pipeline.number)
    payload = PipelinePayload(
        job=place.job.id,
        incarnation=place.job.incarnation,
        env=spec.env,
        pipeline=next(p for p in spec.pipelines if p.number == place.pipeline.number),
        secrets=dict(secrets),
        restore=Restore(
            epoch=place.pipeline.epoch,
            highest=epochs.highest(conn, place.job.incarnation, place.pipeline.number),
            positions=dict(place.pipeline.positions),
            # Settling reads no source, and must not fail because of an impossible ready set.
            ready=tuple(ready_of(conn, place, spec) if kind is TaskKind.PIPELINE else ()),
            written=dict(place.pipeline.written),
            open=tuple(_open_epoch(epoch) for epoch in open_epochs),
            completed=place.pipeline.completed_epoch,
            aborted=tuple(epochs.aborted_after(conn, place.at(place.pipeline.really_completed))),
            savepoint=place.job.status is JobStatus.DOING_SAVEPOINT,
        ),
        commit_deadline_s=SettleOrder.of(place.task.payload).commit_deadline_s,
    )
    return payload.model_dump(mode="json", exclude=_NOT_FOR_WORKERS)


def _forget_payload(conn: Connection, task: Task, _place: TaskPlace | None) -> dict[str, Any]:
    key = ForgetOrder.of(task.payload).incarnation
    cleanup = cleanups.get(conn, key)
    if cleanup is None:
        raise Refused(f"incarnation {key!r} is cleaned already, or goes on")
    stored, secrets = cleanups.spec_and_secrets_of(conn, key)
    spec = JobSpec.model_validate(stored, extra="ignore")
    owners = cleanups.owners(conn, most=OWNERS_MAX + 1)
    payload = ForgetPayload(
        job=cleanup.job_id,
        incarnation=incarnation_of(key),
        env=spec.env,
        pipelines=spec.pipelines,
        secrets=dict(secrets),
        up_to=cleanup.up_to,
        completed=_completed_epochs(conn, incarnation_of(key)),
        owners=tuple(owners) if len(owners) <= OWNERS_MAX else None,
    )
    return payload.model_dump(mode="json", exclude=_NOT_FOR_WORKERS)


def _completed_epochs(conn: Connection, incarnation: str) -> dict[int, int]:
    """By pipeline: the completed epoch in the savepoint; empty when there is no savepoint."""
    savepoint = savepoints.of_incarnation(conn, incarnation)
    completed: dict[int, int] = {}
    for facts in savepoint.pipelines if savepoint is not None else ():
        completed_epoch = facts.get("completed_epoch")
        completed[int(facts["number"])] = int(
            facts["epoch"] if completed_epoch is None else completed_epoch
        )
    return completed


def _open_epoch(epoch: epochs.Epoch) -> OpenEpoch:
    return OpenEpoch(
        epoch=epoch.epoch,
        status=epoch.status,
        plan=EpochPlan.model_validate(epoch.plan),
        handles=dict(epoch.handles) if epoch.handles is not None else None,
    )


Build = Callable[[Connection, Task, TaskPlace | None], dict[str, Any]]
_JOB_PAYLOADS: Mapping[TaskKind, Build] = {  # of all kinds but those of tables
    TaskKind.PIPELINE: _pipeline_payload,
    TaskKind.SETTLE: _pipeline_payload,
    TaskKind.FORGET: _forget_payload,
    TaskKind.NOOP: _noop_payload,
}


class RepeatedAssignments:
    """Counts and logs assignments that were sent again. Lives for one leader term."""

    def __init__(self, term: int, metrics: Metrics) -> None:
        self._term, self._metrics = term, metrics
        self._once = Once()

    def note(self, task: Task) -> None:
        """Count each, so that an endless loop can be seen; log the first of an execution."""
        self._metrics.redeploys.inc()
        if not self._once.first(task.claim):
            return
        named = task.job_id is not None and task.pipeline is not None
        at = Location(task.job_id or "", task.pipeline or 0) if named else None
        log.warning(
            "task deployed again",
            extra={
                "job": at and at.job,
                "pipeline": at and at.pipeline,
                "task_group": at and at.task_group,
                "execution": task.claim.execution,
                "worker": task.worker_id,
                "term": self._term,
            },
        )
