"""Many jobs at once, written as a leader would have left them."""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import pytest
from sqlalchemy import Connection, insert

from headrace.coordinator.jobs.reconciler import JobReconciler
from headrace.model.jobs.epoch import EpochKind, EpochStatus
from headrace.model.jobs.status import JobStatus, PipelineStatus
from headrace.model.task import Lane, TaskKind, TaskStatus
from headrace.store.core import prepared_statements
from headrace.store.core.engine import writing
from headrace.store.jobs.schema import epochs as epoch_rows
from headrace.store.jobs.schema import jobs as job_rows
from headrace.store.jobs.schema import pipelines as pipeline_rows
from headrace.store.tasks.schema import tasks as task_rows
from tests.coordinator.leader_harness import LeaderHarness

OTHER = "other"  # their group, which has no worker


def add(
    desk: LeaderHarness,
    ids: Sequence[str],
    status: JobStatus,
    pipeline: PipelineStatus,
    *,
    pipelines: int = 1,
    moved: int = 0,
    **values: Any,
) -> Sequence[str]:
    """Jobs that nothing marks, unless `values` or `moved` do."""
    with writing(desk.store) as conn:
        conn.execute(
            insert(job_rows),
            [
                {
                    "name": "many",
                    "group_name": OTHER,
                    "queue_number": place,
                    "id": id_,
                    "incarnation": id_,
                    "submission_key": id_,
                    "spec": {},
                    "status": status,
                    "created_at_ms": 1,
                    "due_at_ms": None,
                    **values,
                }
                for place, id_ in enumerate(ids, 1)
            ],
        )
        state: dict[str, Any] = {"status": pipeline, "moved": moved, "positions": {}, "commits": {}}
        conn.execute(
            insert(pipeline_rows),
            [{"job_id": id_, "number": n + 1, **state} for id_ in ids for n in range(pipelines)],
        )
    return ids


def add_running(desk: LeaderHarness, first: int, last: int) -> Sequence[str]:
    """Jobs that run, without a task that anybody could lose."""
    ids = [f"many-{n:05}" for n in range(first, last)]
    return add(desk, ids, JobStatus.RUNNING, PipelineStatus.RUNNING)


def add_settling(desk: LeaderHarness, count: int, **values: Any) -> Sequence[str]:
    """Canceled jobs, each with an epoch to commit and no worker to settle it."""
    told = f"a worker in group {OTHER!r} to settle epoch 1 of pipeline 1"
    values = {"wanted_cancel": 1, "waits_for": told, "due_at_ms": 0, **values}
    ids = [f"settling-{n:05}" for n in range(count)]
    add(desk, ids, JobStatus.CANCELING, PipelineStatus.RUNNING, **values)
    with writing(desk.store) as conn:
        for kind, lane, status in (
            (TaskKind.PIPELINE, Lane.SLOT, TaskStatus.CANCELED),
            (TaskKind.SETTLE, Lane.CONTROL, TaskStatus.PLANNED),
        ):
            about = {"kind": kind, "lane": lane, "status": status, "group_name": OTHER}
            ended = {"ended_at_ms": 1 if status is TaskStatus.CANCELED else None}
            task: dict[str, Any] = {
                **about,
                **ended,
                "pipeline": 1,
                "payload": {},
                "created_at_ms": 1,
            }
            conn.execute(
                insert(task_rows), [{"id": f"{kind}-{id_}", "job_id": id_, **task} for id_ in ids]
            )
        epoch: Mapping[str, Any] = {
            "pipeline": 1,
            "epoch": 1,
            "kind": EpochKind.CHECKPOINT,
            "status": EpochStatus.PREPARED,
            "plan": {},
            "handles": {},
            "execution": "e",
            "planned_at_ms": 1,
            "prepared_at_ms": 1,
        }
        conn.execute(
            insert(epoch_rows), [{"incarnation": id_, "job_id": id_, **epoch} for id_ in ids]
        )
    return ids


@contextmanager
def counted_statements() -> Generator[list[str]]:
    """The prepared statements that run meanwhile."""
    statements: list[str] = []
    really = prepared_statements.execute

    def run(conn: Connection, sql: str, *values: Any) -> Any:
        statements.append(sql)
        return really(conn, sql, *values)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(prepared_statements, "execute", run)
        yield statements


def slow_steps(desk: LeaderHarness, patched: pytest.MonkeyPatch, step_s: float) -> None:
    """Each step of a job takes so long, on the clock that passes are limited by."""
    really = JobReconciler.reconcile

    def slow(self: JobReconciler, conn: Connection, key: str) -> None:
        desk.clock.advance(step_s)
        really(self, conn, key)

    patched.setattr(JobReconciler, "reconcile", slow)
