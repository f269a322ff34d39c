"""What an assignment carries: built when it is given, so that it says where things stand now."""

from __future__ import annotations

import logging
from typing import Any

from pydantic import ValidationError
from sqlalchemy import Connection
from sqlalchemy.exc import DBAPIError

from headrace.coordinator.attempts import Place, place_of
from headrace.coordinator.ready import ready_of
from headrace.coordinator.tables.payloads import payload_of
from headrace.errors import Refused
from headrace.model.cleanup import incarnation_of
from headrace.model.epoch import COMMIT_DEADLINE_S
from headrace.model.job import JOB_ENDED, JobStatus
from headrace.model.jobspec import JobSpec
from headrace.model.task import OF_TABLES, Claim, TaskKind
from headrace.model.text import without_nul
from headrace.protocol.messages import Assignment
from headrace.protocol.payloads import ForgetPayload, OpenEpoch, PipelinePayload, Plan, Restore
from headrace.store import cleanups, epochs, jobs, savepoints
from headrace.store.tasks import Task

log = logging.getLogger(__name__)

# Decided by coordinators alone. A worker of an older version would refuse an env that has it.
_NOT_FOR_WORKERS = {"env": {"lost_workers_max"}}
OWNERS_MAX = 10_000  # incarnations told to a FORGET task; with more of them nothing is a stray


def assignment(
    conn: Connection, task: Task, claim: Claim, place: Place | None, *, now_ms: int
) -> Assignment:
    """Refused: what the store holds of the task can't be read, and no other try will read it. But
    KeyRefused: the key of its secrets is not held here right now.

    `place` saves reading it once more, if it was read for this answer.
    """
    try:
        if task.kind is TaskKind.NOOP:
            payload = dict(task.payload)
        elif task.kind is TaskKind.FORGET:
            payload = _forget(conn, task)
        elif task.kind in OF_TABLES:
            payload = payload_of(conn, task, now_ms=now_ms)
        else:
            payload = _pipeline(conn, place or place_of(conn, task))
        return Assignment(claim=claim, kind=task.kind, lane=task.lane, payload=payload)
    except DBAPIError:
        raise  # the store is away, and no row is to blame
    except Refused:
        raise
    except Exception as error:
        log.exception("task can't be read", extra={"task": task.id, "job": task.job_id})
        if task.kind in OF_TABLES:
            raise Refused(f"what the store holds of it can't be read: {_reason(error)}") from error
        raise unreadable(task.job_id, error) from error


def unreadable(job_id: str | None, error: Exception) -> Refused:
    return Refused(
        f"what the store holds of job {job_id!r} can't be read: {_reason(error)}; was it "
        "written by a newer headrace? upgrade the coordinators, then submit the job again"
    )


def _reason(error: Exception) -> str:
    """Without the values: there may be a secret among them."""
    if not isinstance(error, ValidationError):
        return without_nul(repr(error))
    problem = error.errors(include_url=False, include_input=False)[0]
    return f"{'.'.join(str(part) for part in problem['loc'])}: {problem['msg']}"


def _pipeline(conn: Connection, place: Place) -> dict[str, Any]:
    kind = place.task.kind
    spec, secrets = jobs.spec_and_secrets_of(conn, place.job.id)
    if place.job.status in JOB_ENDED:  # it is settled, which only its sinks are needed for
        _, secrets = cleanups.reach(conn, place.job.incarnation)
    found = epochs.all_open(conn, place.job.incarnation, place.pipeline.number)
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
            # Settling reads nothing, and must not fail for who has.
            ready=tuple(ready_of(conn, place, spec) if kind is TaskKind.PIPELINE else ()),
            written=dict(place.pipeline.written),
            open=tuple(_open(epoch) for epoch in found),
            completed=place.pipeline.completed_epoch,
            aborted=tuple(epochs.aborted_after(conn, place.at(place.pipeline.really_completed))),
            savepoint=place.job.status is JobStatus.DOING_SAVEPOINT,
        ),
        commit_deadline_s=float(place.task.payload.get("commit_deadline_s", COMMIT_DEADLINE_S)),
    )
    return payload.model_dump(mode="json", exclude=_NOT_FOR_WORKERS)


def _forget(conn: Connection, task: Task) -> dict[str, Any]:
    key = str(task.payload["incarnation"])
    cleanup = cleanups.get(conn, key)
    if cleanup is None:
        raise Refused(f"incarnation {key!r} is cleaned already, or goes on")
    stored, secrets = cleanups.reach(conn, key)
    spec = JobSpec.model_validate(stored, extra="ignore")
    owners = cleanups.owners(conn, most=OWNERS_MAX + 1)
    payload = ForgetPayload(
        job=cleanup.job_id,
        incarnation=incarnation_of(key),
        env=spec.env,
        pipelines=spec.pipelines,
        secrets=dict(secrets),
        up_to=cleanup.up_to,
        completed=_completed(conn, incarnation_of(key)),
        owners=tuple(owners) if len(owners) <= OWNERS_MAX else None,
    )
    return payload.model_dump(mode="json", exclude=_NOT_FOR_WORKERS)


def _completed(conn: Connection, incarnation: str) -> dict[int, int]:
    """By pipeline, as the job can be restored; of one that can't be, nothing."""
    made = savepoints.of(conn, incarnation)
    completed: dict[int, int] = {}
    for facts in made.pipelines if made is not None else ():
        known = facts.get("completed_epoch")
        completed[int(facts["number"])] = int(facts["epoch"] if known is None else known)
    return completed


def _open(found: epochs.Epoch) -> OpenEpoch:
    return OpenEpoch(
        epoch=found.epoch,
        status=found.status,
        plan=Plan.model_validate(found.plan),
        handles=dict(found.handles) if found.handles is not None else None,
    )
