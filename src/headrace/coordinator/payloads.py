"""What an assignment carries: built when it is given, so that it says where things stand now."""

from __future__ import annotations

from typing import Any

from sqlalchemy import Connection

from headrace.coordinator.reports import place_of
from headrace.model.task import Claim, TaskKind
from headrace.protocol.messages import Assignment
from headrace.protocol.payloads import OpenEpoch, PipelinePayload, Plan, Restore
from headrace.store import epochs, jobs
from headrace.store.tasks import Task


def assignment(conn: Connection, task: Task, claim: Claim) -> Assignment:
    payload: dict[str, Any] = (
        dict(task.payload) if task.kind is TaskKind.NOOP else _pipeline(conn, task)
    )
    return Assignment.model_construct(claim=claim, kind=task.kind, lane=task.lane, payload=payload)


def _pipeline(conn: Connection, task: Task) -> dict[str, Any]:
    place = place_of(conn, task)
    spec = jobs.spec_of(conn, place.job.id)
    found = epochs.open_one(conn, place.job.incarnation, place.pipeline.number)
    payload = PipelinePayload(
        job=place.job.id,
        incarnation=place.job.incarnation,
        env=spec.env,
        pipeline=next(p for p in spec.pipelines if p.number == place.pipeline.number),
        secrets=dict(jobs.secrets_of(conn, place.job.id)),
        restore=Restore(
            epoch=place.pipeline.epoch,
            positions=dict(place.pipeline.positions),
            rows_out=place.pipeline.rows_out,
            open=found
            and OpenEpoch(
                epoch=found.epoch,
                status=found.status,
                plan=Plan.model_validate(found.plan),
                handles=dict(found.handles) if found.handles is not None else None,
            ),
        ),
    )
    return payload.model_dump(mode="json")
